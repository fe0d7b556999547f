"""What people write, read with the place of every part: YAML, JSON, amounts, and what is wrong with it. No git."""
