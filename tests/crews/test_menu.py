"""The router: a property for each of its rules, over menus that hypothesis makes, and what an example shows better."""

from __future__ import annotations

import re
from unicodedata import normalize

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from uwf_git.ext.crews.crew_node import CrewWorkflow, Effect, Handler, Member, MenuItem
from uwf_git.ext.crews.menu import (
    CHAT,
    CLARIFY,
    DISMISS,
    EXACT,
    HIGH,
    INSTRUCT,
    LOW,
    MEDIUM,
    RESUME,
    RUN_PROMPT,
    RUN_SCRIPT,
    SHOW_MENU,
    START,
    Routing,
    route,
    shown,
)
from uwf_git.format.ids import Hash
from uwf_git.format.personas import Persona

# Few letters, so that texts meet: equal, contained in each other, as words and as parts of words.
WORD = st.text("abAB*-é計", min_size=1, max_size=4)
WORDS = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
MAYBE = st.one_of(st.just(""), WORDS)
DOES = st.sampled_from(
    [
        Effect(workflow="plan"),
        Effect(exec="scripts/tell.md"),
        Effect(action="#brief"),
        Effect(action="menu.show"),
        Effect(action="say it"),
        Effect(),
    ]
)
ITEM = st.builds(
    MenuItem,
    description=st.one_of(MAYBE, WORD.map(lambda code: f"[{code}] b a")),
    trigger=MAYBE,
    cmd=MAYBE,
    aliases=st.lists(WORDS, max_size=2).map(tuple),
    handlers=st.lists(st.builds(Handler, WORDS, DOES), max_size=2).map(tuple),
    does=DOES,
    validate=st.just(""),
    surface=st.sampled_from(["", "", "", "ide", "web", "none"]),
)
MENU = st.lists(ITEM, min_size=1, max_size=5).map(tuple)
SPACE = st.text(" \t\n\u3000", max_size=3)
THOROUGHLY = settings(max_examples=300)


def member(*menu: MenuItem) -> Member:
    return Member(Persona("mary", "Mary"), {}, menu)


def said(text: str, *menu: MenuItem, **options: object) -> Routing:
    workflows = (CrewWorkflow("plan", Hash("0" * 13), entry="workflow.md"),)
    return route(member(*menu), workflows, text, **options)  # type: ignore[arg-type]


def visible(menu: tuple[MenuItem, ...]) -> list[int]:
    return [index for index, item in enumerate(menu) if item.surface in ("", "ide")]


def plain(text: str) -> str:
    return " ".join(normalize("NFC", text).casefold().split()).removeprefix("*").strip()


def names(item: MenuItem) -> list[str]:
    return [plain(text) for text in (item.trigger, item.cmd, *item.aliases) if text]


def equal(menu: tuple[MenuItem, ...], text: str) -> set[tuple[int, int | None]]:
    """By the rules as they are written: the candidates that are called so, by item and handler."""
    found: set[tuple[int, int | None]] = set()
    for index in visible(menu):
        item = menu[index]
        codes = [plain(code) for code in re.findall(r"\[(\S+?)\]", item.description)]
        if plain(text) in names(item) + codes:
            found.add((index, None))
        found |= {
            (index, place) for place, each in enumerate(item.handlers) if plain(each.match) == plain(text)
        }
    return found


def taken(routed: Routing) -> set[tuple[int, int | None]]:
    choices = (routed.choice,) if routed.choice else routed.candidates
    return {(choice.place, choice.handler) for choice in choices}


@THOROUGHLY
@given(MENU, SPACE, st.sampled_from(["", "*", " * "]))
def test_rule_1_nothing_but_white_space_shows_the_menu(
    menu: tuple[MenuItem, ...], space: str, star: str
) -> None:
    routed = said(space + star + space, *menu)
    assert (routed.kind, routed.confidence, routed.choice) == (SHOW_MENU, EXACT, None)


@THOROUGHLY
@given(MENU, WORDS, SPACE)
def test_rule_1_neither_case_nor_a_star_nor_white_space_around_changes_what_is_meant(
    menu: tuple[MenuItem, ...], text: str, space: str
) -> None:
    assume(plain(text) and not plain(text).startswith("*"))
    meant = said(plain(text), *menu).value()
    assert said(f"{space}*{plain(text).upper()}{space}", *menu).value() == meant
    assert said(normalize("NFD", plain(text)), *menu).value() == meant


@THOROUGHLY
@given(MENU, WORDS)
def test_rule_2_only_what_the_surface_shows_can_be_meant(menu: tuple[MenuItem, ...], text: str) -> None:
    on_terminal, on_web = said(text, *menu), said(text, *menu, surface="web")
    assert {menu[index].surface for index, _ in taken(on_terminal)} <= {"", "ide"}
    assert {menu[index].surface for index, _ in taken(on_web)} <= {"", "web"}
    # What isn't shown may as well not be there.
    kept = tuple(menu[index] for index in visible(menu))
    same = said(text, *kept)
    assert (same.kind, same.confidence, same.reason) == (
        on_terminal.kind,
        on_terminal.confidence,
        on_terminal.reason,
    )


@THOROUGHLY
@given(MENU, st.integers(0, 8), st.sampled_from(["", "00", "*"]))
def test_rule_3_a_number_is_a_place_among_the_items_shown(
    menu: tuple[MenuItem, ...], number: int, before: str
) -> None:
    places = visible(menu)
    assume(places)
    routed = said(f"{before}{number}", *menu)
    if not 1 <= number <= len(places):
        assert routed.kind == CLARIFY and f"{len(places)}, not" in routed.reason
        assert [choice.place for choice in routed.candidates] == places
        return
    index = places[number - 1]
    assert {found for found, _ in taken(routed)} == {index}
    if any(menu[index].does):
        assert taken(routed) == {(index, None)} and routed.confidence == EXACT


@THOROUGHLY
@given(MENU, st.sampled_from(["0", "same"]), st.integers(1, 9))
def test_rule_3_after_a_question_a_number_is_a_place_among_what_was_offered(
    menu: tuple[MenuItem, ...], text: str, number: int
) -> None:
    menu = (*(item._replace(trigger="same", does=Effect(action="say it")) for item in menu), MenuItem("Same"))
    asked = said(text, *menu)
    assume(asked.kind == CLARIFY)
    routed = said(str(number), *menu, offered=asked.candidates)
    if number <= len(asked.candidates):
        assert routed.choice == asked.candidates[number - 1] and routed.confidence == EXACT
    else:
        assert (routed.kind, routed.candidates) == (CLARIFY, asked.candidates)


@THOROUGHLY
@given(MENU, st.data())
def test_rule_4_what_is_called_so_is_meant_whatever_else_holds_the_text(
    menu: tuple[MenuItem, ...], data: st.DataObject
) -> None:
    called = [
        text
        for item in map(menu.__getitem__, visible(menu))
        for text in (item.trigger, item.cmd, *item.aliases, *(each.match for each in item.handlers))
        if plain(text)
    ]
    assume(called)
    text = data.draw(st.sampled_from(called))
    routed, found = said(text, *menu), equal(menu, text)
    assert routed.confidence == EXACT
    # An item that does nothing by itself stands for its handlers.
    led = {
        each
        for index, place in found
        for each in (
            [(index, number) for number in range(len(menu[index].handlers))]
            if place is None and not any(menu[index].does) and menu[index].handlers
            else [(index, place)]
        )
    }
    what = {(index, menu[index].does if h is None else menu[index].handlers[h].does) for index, h in led}
    assert taken(routed) <= led
    assert (routed.kind == CLARIFY) == (len(what) > 1)


@THOROUGHLY
@given(MENU, WORDS)
def test_rule_5_a_text_leads_to_the_best_of_those_that_hold_it(menu: tuple[MenuItem, ...], text: str) -> None:
    assume(not equal(menu, text) and len(plain(text)) >= 2)
    wanted = plain(text)

    def places(texts: list[str], low: int) -> set[int]:
        """0 for whole words of a name, 1 of a description, 2 and 3 for parts of words."""
        held = [each for each in texts if wanted in each]
        whole = [each for each in held if re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", each)]
        return ({low} if whole else set()) | ({low + 2} if held else set())

    best: dict[tuple[int, int | None], int] = {}
    for index in visible(menu):
        item = menu[index]
        for place, handler in enumerate(item.handlers):
            if found := places([plain(handler.match)], 0):
                best[index, place] = min(found)
        described = set() if any(key[0] == index for key in best) else places([plain(item.description)], 1)
        if found := places(names(item), 0) | described:
            best[index, None] = min(found)
    routed = said(text, *menu)
    if not best:
        assert routed.kind == CHAT
        return
    top = min(best.values())
    assert routed.confidence == (HIGH, MEDIUM, MEDIUM, LOW)[top]
    first = {key for key, place in best.items() if place == top}
    assert {index for index, _ in taken(routed)} <= {index for index, _ in first}
    if len({index for index, _ in first}) > 1:
        assert routed.kind == CLARIFY


@THOROUGHLY
@given(MENU, st.text("xyz?!", min_size=1, max_size=9))
def test_rule_6_what_the_menu_does_not_hold_is_said_to_the_persona(
    menu: tuple[MenuItem, ...], text: str
) -> None:
    routed = said(text, *menu)
    assert (routed.kind, routed.choice, routed.candidates, routed.said) == (CHAT, None, (), text)


@THOROUGHLY
@given(MENU, st.one_of(WORDS, st.text(max_size=6)))
def test_any_text_has_one_answer_and_always_the_same(menu: tuple[MenuItem, ...], text: str) -> None:
    routed = said(text, *menu)
    assert routed == said(text, *menu)
    assert (routed.kind == CLARIFY) == bool(routed.candidates)
    assert routed.choice is None or routed.kind == routed.choice.kind


def test_one_letter_is_looked_for_in_nothing() -> None:
    assert said("p", MenuItem("Plan it", "plan")).kind == CHAT
    assert said("p", MenuItem("[P] Plan it", "plan")).confidence == EXACT


def test_digits_beyond_any_menu_are_out_of_its_range_and_none_without_a_menu() -> None:
    assert said("9" * 5000, MenuItem("Plan it", "plan")).kind == CLARIFY
    assert said("42").kind == CHAT
    assert said("２", MenuItem("Plan it"), MenuItem("Tell it")).matched_menu_item_index == 1


def test_a_handler_goes_before_the_description_of_its_item_but_not_before_its_name() -> None:
    handler = Handler("plan-trips", Effect(workflow="plan"))
    routed = said("plan", MenuItem("Plan a trip", "go", handlers=(handler,), does=Effect(action="say")))
    assert routed.choice is not None and (routed.choice.handler, routed.kind) == (0, START)
    item = MenuItem("Plan a trip", "plan a", handlers=(handler,), does=Effect(action="say"))
    assert said("plan", item).kind == CLARIFY


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        (Effect(workflow="plan"), START),
        (Effect(exec="@pkg/workflow.md"), START),
        (Effect(exec="elsewhere/workflow.md"), START),
        (Effect(exec="scripts/tell.md"), RUN_SCRIPT),
        (Effect(action="#brief"), RUN_PROMPT),
        (Effect(action="menu.show"), SHOW_MENU),
        (Effect(action="agent.dismiss"), DISMISS),
        (Effect(action="run.resume"), RESUME),
        (Effect(action="Say what you think"), INSTRUCT),
        (Effect(), INSTRUCT),
    ],
)
def test_the_kind_is_what_the_item_does(does: Effect, kind: str) -> None:
    assert said("do", MenuItem("Do it", does=does)).kind == kind


def test_one_of_two_hundred_items_is_found() -> None:
    menu = [
        MenuItem(
            f"[C{number}] Make the {number}th plan — über alles",
            f"plan-{number}",
            f"*plan {number}",
            aliases=(f"make {number}",),
            handlers=(Handler(f"handler {number}", Effect(action="say")),),
            does=Effect(workflow="plan"),
        )
        for number in range(200)
    ]
    assert said("the 199th plan", *menu).matched_menu_item_index == 199
    assert len(shown(member(*menu), ())) == 200
