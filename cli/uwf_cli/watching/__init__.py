"""What goes on, while it goes on: the live lines of a terminal, threads that run side by side, and all that happens to
threads as lines."""
