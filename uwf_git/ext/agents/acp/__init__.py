"""A client of the Agent Client Protocol. Only `session` imports the SDK."""
