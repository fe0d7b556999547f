"""One step of one thread, and what it cost."""
