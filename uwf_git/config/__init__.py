"""The user's configuration: `config.yaml`, `.env`, and tool policies."""
