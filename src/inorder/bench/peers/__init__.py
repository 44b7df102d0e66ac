"""What the relay is measured against, each tuned as far as we know how and set up on first use."""
