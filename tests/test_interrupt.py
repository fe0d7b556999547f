"""A signal that comes while a child is being started."""

from __future__ import annotations

import signal

import pytest

from uwf_git.processes import deferred


def test_a_signal_waits_until_the_block_has_ended_and_then_does_what_it_does() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("the whole block")
    assert done == ["the whole block"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
