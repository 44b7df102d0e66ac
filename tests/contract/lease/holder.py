"""A process that holds a lease until it is killed, or until its standard input is closed."""

from __future__ import annotations

import select
import sys

from tests.contract.lease.making import make_lease

HELD = "held"


def main(kind: str, address: str, group: str, seconds: str) -> None:
    """Asks ten times a second, until its output is closed; says once that it holds the lease."""
    lease = make_lease(kind, address, group, "holder process", float(seconds))  # type: ignore[arg-type]  # from a test
    was_held = False
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        if lease.acquire() and not was_held:
            was_held = True
            sys.stdout.write(f"{HELD}\n")
            sys.stdout.flush()
    lease.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
