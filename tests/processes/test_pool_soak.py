"""Half a minute of what `make pool-soak` does for half an hour."""

from __future__ import annotations

from pathlib import Path

import pytest
from pool_soak import soak


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.needs("bwrap")
def test_nothing_is_lost_or_asked_twice_while_processes_of_a_pool_are_killed(tmp_path: Path) -> None:
    tally = soak(minutes=0.5, seed=0, folder=tmp_path)
    assert tally.violations == []
    assert tally.kills.total() > 0 and tally.asked > 0
