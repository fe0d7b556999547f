"""Tests of many variants: `make test` runs a sample of them."""

from __future__ import annotations

import pytest
from conftest import mark_beyond_samples

TESTS = """
import pytest

@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(9))
def test_many(number): pass

@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(2))
def test_few(number): pass

@pytest.mark.parametrize("number", range(9))
def test_unmarked(number): pass
"""


def test_a_sample_has_the_first_the_last_and_what_is_halfway(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  sample\n  extended\n")
    items = pytester.getitems(TESTS)
    mark_beyond_samples(items)
    extended = [item.name for item in items if item.get_closest_marker("extended")]
    assert extended == [f"test_many[{number}]" for number in (1, 2, 3, 5, 6, 7)]
