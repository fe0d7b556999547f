"""Pages of a store for one's own machine: a server that only its user gets into, and the same pages as files."""
