"""The tools of the built-in agent, what confines them (paths, repositories, the sandbox), and MCP servers as tools."""
