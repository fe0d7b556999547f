"""Two stores: what travels between them, and what happens where both went on."""
