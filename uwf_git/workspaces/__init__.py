"""Where a thread's agents work: a worktree of the project for each thread, and commits of what its steps left."""
