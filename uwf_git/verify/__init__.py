"""Verification of a store or received objects, from git's objects alone."""
