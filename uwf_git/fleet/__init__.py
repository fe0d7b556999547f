"""Many threads, many workers: Temporal hands out the steps, git says what is true."""
