"""The list of books, for spreadsheets."""


def write_csv(rows: list[list[str]]) -> str:
    """The rows as CSV."""
    return "".join(",".join(row) + "\n" for row in rows)
