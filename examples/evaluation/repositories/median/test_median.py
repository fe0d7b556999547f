import unittest

from median import median


class Median(unittest.TestCase):
    def test_of_an_odd_number_of_values(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_of_an_even_number_of_values(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
