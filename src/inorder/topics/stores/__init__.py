"""Where the generations of topics are kept, and the cluster that they are on."""
