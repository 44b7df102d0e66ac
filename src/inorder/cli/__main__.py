"""`python -m inorder.cli` is the inorder command."""

import sys

from inorder.cli.main import main

sys.exit(main())
