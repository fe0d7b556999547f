"""Checks of crews in `uwf doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.ext.crews.registry import Crews
from uwf_git.plugin import ERROR, OK, Check, UwfError

if TYPE_CHECKING:
    from uwf_git.plugin import Instance


def checks(instance: Instance) -> Iterator[Check]:
    """Whether every crew and its workflows are readable."""
    crews = Crews(instance.store)
    names = crews.names()
    for name in names:
        try:
            crews.workflows(crews.crew(crews.current(name).hash))
        except UwfError as error:
            yield Check("crews", ERROR, f"{name}: {error.message}", error.hint, True)
    if names:
        yield Check("crews", OK, f"{len(names)} imported")
