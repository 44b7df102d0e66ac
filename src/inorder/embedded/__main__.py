"""`python -m inorder.embedded` downloads what the embedded servers need, so that later starts need no network."""

from __future__ import annotations

import sys

from inorder.embedded.jars import fetch, jar_sets
from inorder.model.errors import InorderError


def main() -> int:
    """Fetches all sets of jars; prints the error and returns its exit code where that fails."""
    try:
        for name in jar_sets():
            fetch(name)
    except InorderError as error:
        sys.stderr.write(f"error {error.code}: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
