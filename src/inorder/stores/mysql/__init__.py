"""MySQL and MariaDB behind the ports; needs the extra `inorder[mysql]`."""
