"""Whom the relay is measured against, each tuned as far as we know how and set up when first asked for."""
