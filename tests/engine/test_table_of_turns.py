"""docs/inside/turns.md against the code."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from inspect import getmembers

import one_role
import pytest
from conftest import REPOSITORY

from uwf_git.api.run import Options, run
from uwf_git.base.errors import Invalid
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.outcome import outcome_of
from uwf_git.engine.turn.hooks import Hooks, Part, Room
from uwf_git.engine.turn.table import room_for
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.workflow.turn import TurnKind, turn_of

PAGE = (REPOSITORY / "docs/inside/turns.md").read_text(encoding="utf-8")
ROOMS = [room_for(kind) for kind in TurnKind]
FUNCTION = re.compile(r"`((?:engine|verify|sync)\.[\w.]+)`")


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of the table below a heading, by the first of each row."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {first: rest for first, *rest in cells}


def named(name: str) -> object:
    """What a dotted name below uwf_git stands for."""
    parts = name.split(".")
    end = next(at for at, part in enumerate(parts) if part[0].isupper() or at == 2)
    return reduce(getattr, parts[end:], importlib.import_module(f"uwf_git.{'.'.join(parts[:end])}"))


@pytest.mark.parametrize("name", sorted(set(FUNCTION.findall(PAGE))))
def test_each_function_that_the_table_names_exists(name: str) -> None:
    assert callable(named(name))


def test_each_kind_of_turn_has_a_row_on_the_page_and_in_the_table() -> None:
    assert rows("Rooms").keys() == {kind.value.name for kind in TurnKind}
    assert len(set(map(type, ROOMS))) == len(TurnKind)


@pytest.mark.parametrize("heading", ["Rooms", "Parts", "Who else asks"])
def test_no_cell_is_empty_without_a_reason(heading: str) -> None:
    assert all(cell.strip("—- ") for cells in rows(heading).values() for cell in cells)


def hooks_of(hooks: Hooks, base: type[Hooks]) -> set[str]:
    """The names of the hooks that a class has of its own, as the page names them."""
    module = type(hooks).__module__.removeprefix("uwf_git.")
    return {
        f"{module}.{type(hooks).__name__}.{name}"
        for name, function in getmembers(type(hooks), callable)
        if hasattr(base, name) and not name.startswith("_") and name in vars(type(hooks)) and name != "fail"
    }


def test_each_hook_of_a_room_or_part_stands_on_the_page() -> None:
    parts = [hooks_of(part, Part) for room in ROOMS for part in room.parts]
    missing = set().union(*(hooks_of(room, Room) for room in ROOMS), *parts) - set(FUNCTION.findall(PAGE))
    missing.discard("engine.turn.agent.AgentRoom.check")  # the page names the function that it calls
    assert not missing


def test_the_word_of_no_turn_is_refused(instance: Instance) -> None:
    thread = ThreadId(one_role.start(instance, {"type": "object"}))
    workflow = instance.threads.history(instance.threads.head(thread)).workflow
    with pytest.raises(Invalid, match=r"no turn is called \$SLEEP"):
        turn_of(workflow, "$SLEEP")


def test_a_remark_is_refused_before_a_turn_whose_room_does_not_allow_it() -> None:
    assert type(room_for(TurnKind.AGENT)).remark is not Room.remark
    assert type(room_for(TurnKind.END)).remark is Room.remark
    with pytest.raises(Invalid, match="nothing can be said"):
        room_for(TurnKind.END).remark(ThreadId("01JK7MAAAAAAAAAAAAAAAAAAAA"))


def test_a_run_stops_if_a_step_does_not_move_the_head(instance: Instance) -> None:
    thread = ThreadId(one_role.start(instance, {"type": "object"}))
    at = instance.threads.position(instance.threads.head(thread))
    unmoved = outcome_of(instance, at, outlook(instance, *at), None)
    assert list(run(instance, thread, Options, make=lambda *_: unmoved)) == [unmoved]
