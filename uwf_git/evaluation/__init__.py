"""Is this version better than that one? Suites of cases, their runs, and what judges say of them."""
