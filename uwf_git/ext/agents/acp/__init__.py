"""The Agent Client Protocol, from the client's side. `session` is the only module that knows the SDK."""
