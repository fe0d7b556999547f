import sys

from export import row

CASES = {'"a,b",c': ["a,b", "c"], "a,b": ["a", "b"]}
wrong = [text for text, cells in CASES.items() if row(cells) != text]
print("quoted as it should be" if not wrong else f"not as it should be: {wrong}")
sys.exit(bool(wrong))
