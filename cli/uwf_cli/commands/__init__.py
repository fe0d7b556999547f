"""The commands, a module a group. `uwf_cli.tree` says where each is."""
