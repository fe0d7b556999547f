"""Details that say what isn't so, in a history that is sound but for that."""

from __future__ import annotations

from forged import Line
from test_hostile_history import assert_names, judge, line, look, write

from uwf_git.values.types import TEXT

__all__ = ["line"]  # the fixture


def test_a_detail_of_somebody_elses_making_may_say_nothing_of_its_prompt(line: Line) -> None:
    second = judge(line, write(line, instruction=None, context=None), instruction=None, context=None)
    assert look(line, second[0]).findings == []


def test_secrets_taken_out_of_an_instruction_are_no_lie_and_anything_else_is(line: Line) -> None:
    first = write(
        line,
        instruction="Write about [redacted:KEY].",
        detail={"redactions": [{"where": "instruction", "count": 1}]},
    )
    assert look(line, first[0]).findings == []
    for said in ("Steal [redacted:KEY].", "Write about [redacted:KEY] and steal.", "[redacted:KEY] secretly"):
        liar = write(line, instruction=said, detail={"redactions": [{"where": "instruction", "count": 1}]})
        assert_names(look(line, liar[0]), line, "wrong-detail", liar[1])
    liar = write(line, instruction="Write about [redacted:KEY].")
    assert_names(look(line, liar[0]), line, "wrong-detail", liar[1])


def test_a_turn_that_is_none_is_named(line: Line) -> None:
    text = line.forger.node(TEXT, "no turn")
    first = write(line)
    liar = write(
        line,
        detail={"turns": [text]},
        folder=lambda folder: folder["nodes"].update(  # type: ignore[union-attr]
            {f"{text}.json": line.forger.blob(line.forger.nodes[text])}
        ),
    )
    assert look(line, first[0]).findings == []
    assert_names(look(line, liar[0]), line, "wrong-detail", liar[1])
