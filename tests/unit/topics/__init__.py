"""The generations of topics, decided without servers."""
