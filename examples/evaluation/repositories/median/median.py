"""Numbers about numbers."""


def median(values: list[float]) -> float:
    """The value in the middle."""
    return sorted(values)[len(values) // 2]
