"""Workflows that are code: the contract, the harness that runs them, what they are trusted by."""
