"""Is a store, or what somebody sent, what it says it is? Checked from git's objects alone."""
