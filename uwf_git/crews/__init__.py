"""Crews: packages of personas, their menus and workflows; how they are read, compiled, kept, and chosen from."""
