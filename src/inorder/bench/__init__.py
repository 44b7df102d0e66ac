"""`inorder bench`: the relay and the pipeline against a peer, on one machine, in one run."""
