import unittest

from slug import slug


class Slug(unittest.TestCase):
    def test_words_are_joined_by_dashes(self):
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_punctuation_is_left_out(self):
        self.assertEqual(slug("Ready, steady, go"), "ready-steady-go")

    def test_several_spaces_make_one_dash(self):
        self.assertEqual(slug("one   two"), "one-two")

    def test_no_dash_stands_at_either_end(self):
        self.assertEqual(slug("What now?"), "what-now")
