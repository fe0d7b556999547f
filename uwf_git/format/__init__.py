"""The promise: nodes, hashes, CBOR, schemas, ids, and YAML and JSON read with positions. Pure."""
