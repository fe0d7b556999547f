"""The stores of earlier programs: read, taken over, and written."""
