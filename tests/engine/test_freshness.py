"""A mark of the refs differs after each change, and a change is not taken for one again and again."""

from __future__ import annotations

import os
import time
from pathlib import Path

from uwf_git.engine.progress import Freshness

MOMENT = 100_000_000  # nanoseconds within which no clock tells two changes apart
ODD = 1_234_567  # which only a fine clock has


def changed(folder: Path, when: int) -> None:
    os.utime(folder, ns=(when, when))


def test_a_change_has_at_most_two_marks_once_its_moment_is_over(tmp_path: Path) -> None:
    fresh, folder = Freshness(tmp_path, ("refs",)), tmp_path / "refs"
    folder.mkdir()
    when = time.time_ns() // 10_000_000 * 10_000_000 + ODD
    changed(folder, when)
    marks = set()
    while (now := time.time_ns()) < when + 2_200_000_000:
        mark = fresh.mark()
        if now > when + MOMENT:
            marks.add(mark)
        time.sleep(0.02)
    marks.add(fresh.mark())
    assert len(marks) <= 2


def test_a_change_within_the_moment_of_another_is_seen_at_once(tmp_path: Path) -> None:
    fresh, folder = Freshness(tmp_path, ("refs",)), tmp_path / "refs"
    folder.mkdir()
    now, when, marks = MOMENT, 0, ((), ())
    while now >= when + MOMENT:  # until both looks were quick enough
        when = time.time_ns()
        changed(folder, when)
        marks = fresh.mark(), fresh.mark()
        now = time.time_ns()
    assert marks[0] != marks[1]


def test_on_a_coarse_clock_each_look_at_a_recent_change_differs(tmp_path: Path) -> None:
    fresh, folder = Freshness(tmp_path, ("refs",)), tmp_path / "refs"
    folder.mkdir()
    changed(folder, (time.time_ns() // 1_000_000_000 + 1) * 1_000_000_000)
    assert fresh.mark() != fresh.mark()


def test_a_mark_stays_while_nothing_changes_and_differs_after_a_change(tmp_path: Path) -> None:
    fresh, folder = Freshness(tmp_path, ("refs",)), tmp_path / "refs"
    folder.mkdir()
    changed(folder, 1_000_000_000_000_000_000 + ODD)
    before = fresh.mark()
    assert fresh.mark() == before
    changed(folder, 1_000_000_000_001_000_000 + ODD)
    assert fresh.mark() != before
