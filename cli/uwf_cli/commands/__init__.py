"""The commands, one module per group; see `uwf_cli.tree`."""
