"""Following one key through every hop: what each of them knows of it, and where it is held up."""
