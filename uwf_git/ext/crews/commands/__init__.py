"""Crews and conversations in the terminal."""
