"""The nouns of inorder: messages, ids, positions and errors. Imports nothing else of ours."""
