"""The size of a set-up, which a stranger's repository may bring."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from uwf_git.base.errors import Invalid
from uwf_git.store.location import checkout_around
from uwf_git.store.setups import read_setup


def test_a_folder_of_many_files_is_refused_at_once(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".uwf").mkdir()
    for number in range(10_000):
        (tmp_path / ".uwf" / str(number)).touch()
    began = time.process_time()
    with pytest.raises(Invalid, match="has over 100 files"):
        read_setup(checkout_around(tmp_path))
    assert time.process_time() - began < 0.5
