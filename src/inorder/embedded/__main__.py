"""Downloads what every embedded server needs, once, so that later starts wait for nothing."""

from __future__ import annotations

import sys

from inorder.embedded.jars import fetch, jar_sets
from inorder.model.errors import InorderError


def main() -> int:
    """Fetches all sets; a sentence and exit code 4 where that is not possible."""
    try:
        for name in jar_sets():
            fetch(name)
    except InorderError as error:
        sys.stderr.write(f"error {error.code}: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
