"""The built-in agent's tools, their confinement (paths, repositories, sandbox), and MCP servers as tools."""
