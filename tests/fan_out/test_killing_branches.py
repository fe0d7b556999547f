"""Three machines share the branches of a thread, and somebody kills their processes all the time."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing_branches import soak


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_kills_on_three_machines_lose_no_branch_and_double_no_join(hermetic: Path, tmp_path: Path) -> None:
    done = soak(tmp_path, branches=9, seed=3, between=2.0)
    assert done.is_sound, done
    assert done.asked <= 9 + 4 * done.kills
