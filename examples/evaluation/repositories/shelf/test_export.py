import csv
import io
import unittest

from export import write_csv


class Export(unittest.TestCase):
    def reads_back(self, *row: str) -> None:
        self.assertEqual(list(csv.reader(io.StringIO(write_csv([list(row)]), newline=""))), [list(row)])

    def test_plain_fields(self):
        self.reads_back("1", "Walden", "1854")

    def test_a_comma_in_a_title(self):
        self.reads_back("2", "Zen, and the Art of Archery", "1948")

    def test_a_quotation_mark_in_a_title(self):
        self.reads_back("3", 'The "Real" Thing', "1892")

    def test_a_line_break_in_a_title(self):
        self.reads_back("4", "Two lines\nin one title", "2025")
