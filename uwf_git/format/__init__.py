"""The stored format: nodes, hashes, CBOR, schemas, ids, and YAML and JSON with positions. Pure."""
