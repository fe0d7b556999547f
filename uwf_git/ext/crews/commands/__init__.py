"""Commands for crews and conversations."""
