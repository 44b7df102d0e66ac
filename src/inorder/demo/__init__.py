"""The whole path on one machine, from a committed transaction to a row, carried by real parts and verified."""

from inorder.demo.run import run

__all__ = ["run"]
