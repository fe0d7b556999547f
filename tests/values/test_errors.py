"""Errors that travel between processes as the names of their classes."""

from __future__ import annotations

import pytest

from uwf_git.base import errors
from uwf_git.base.errors import UwfError, error_of

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, UwfError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_any_kind_is_the_same_in_another_process(kind: type[UwfError]) -> None:
    error = error_of(kind.__name__, "it failed", "do this")
    assert (type(error), error.message, error.hint) == (kind, "it failed", "do this")


@pytest.mark.parametrize("name", ["WorkspaceNotKept", "Failure", "Sequence", "failure_of", "__doc__", ""])
def test_an_error_of_an_unknown_kind_is_a_failure(name: str) -> None:
    assert type(error_of(name, "it failed")) is UwfError
