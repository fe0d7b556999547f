"""The use cases that the command, the pages, MCP, the fleet and evaluation call."""
