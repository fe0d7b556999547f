"""Live output: a terminal's live lines, threads in parallel, events as lines."""
