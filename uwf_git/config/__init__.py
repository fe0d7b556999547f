"""The user's configuration: `config.yaml`, `.env`, and what tools may do."""
