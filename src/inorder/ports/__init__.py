"""What inorder needs from outside, as protocols that adapters fulfil and one conformance suite checks."""
