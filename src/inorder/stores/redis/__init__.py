"""Redis behind the ports; needs the extra `inorder[redis]`."""
