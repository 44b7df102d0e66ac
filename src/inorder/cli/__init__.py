"""The inorder command: thin, it calls services and prints."""

from inorder.cli.main import main

__all__ = ["main"]
