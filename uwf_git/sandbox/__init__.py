"""Child processes with limits and quotas, bubblewrap, confined paths, nested repositories."""
