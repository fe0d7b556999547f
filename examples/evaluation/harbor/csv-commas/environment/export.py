def row(cells):
    return ",".join(cells)
