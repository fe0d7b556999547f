"""Exchange between two stores: push, pull, divergence, review, repair."""
