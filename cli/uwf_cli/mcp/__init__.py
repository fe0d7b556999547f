"""`uwf mcp`: workflows and threads as tools of the Model Context Protocol."""
