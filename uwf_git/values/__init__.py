"""What is hashed and written: nodes, their schemas and hashes, YAML. No git, no network."""
