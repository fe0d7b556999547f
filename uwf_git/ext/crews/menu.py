"""Matching an input with a persona's menu, by the deterministic rules of docs/reference/commands/crews.md. Of several
equally good candidates none is guessed: ClarifyChoice lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from unicodedata import normalize

from uwf_git.ext.crews.crew_node import CrewWorkflow, Effect, Member, MenuItem
from uwf_git.plugin import PACKAGE_MOUNT, counted, one_line

SHOW_MENU, START, RUN_SCRIPT, RUN_PROMPT = "ShowMenu", "StartWorkflow", "RunScript", "RunPrompt"
INSTRUCT, DISMISS, RESUME, CLARIFY, CHAT = "Instruct", "DismissAgent", "ResumeRun", "ClarifyChoice", "Chat"
TURNS = frozenset({RUN_SCRIPT, RUN_PROMPT, INSTRUCT, CHAT})
"""What is one turn of the persona."""

EXACT, HIGH, MEDIUM, LOW = "exact", "high", "medium", "low"
TERMINAL = "terminal"

_BUILT_IN = {"menu.show": SHOW_MENU, "agent.dismiss": DISMISS, "run.resume": RESUME}
_SHOWN_AS = {TERMINAL: "ide"}
_CODE = re.compile(r"\[([^\[\]\s]+)\]")
_MIN_QUERY = 2  # characters of a text that is looked for in others
_MOST_DIGITS = 9

# Match places, best first: whole words of names, of descriptions, then parts of words likewise.
_FOUND = (
    (HIGH, "words of a trigger, cmd, alias or handler"),
    (MEDIUM, "words of a description"),
    (MEDIUM, "a part of a trigger, cmd, alias or handler"),
    (LOW, "a part of a description"),
)


class Choice(NamedTuple):
    """A candidate. `number` is its item's position among those shown, from 1; `place` among all items, from
    0; `handler` the handler's index or None. `kind` is its effect."""

    number: int
    place: int
    handler: int | None
    label: str
    does: Effect
    validate: str
    kind: str

    def value(self) -> dict[str, Any]:
        named = {"number": self.number, "menuItemIndex": self.place, "label": self.label, "kind": self.kind}
        if self.handler is not None:
            named["handler"] = self.handler
        does = {key: text for key, text in self.does._asdict().items() if text}
        return {**named, **does, **({"validate": self.validate} if self.validate else {})}


class Routing(NamedTuple):
    """An input's meaning: `kind` of effect, `reason`, the `choice` or None, a ClarifyChoice's `candidates`,
    the trimmed text `said`."""

    kind: str
    confidence: str
    reason: str
    said: str
    choice: Choice | None = None
    candidates: tuple[Choice, ...] = ()

    @property
    def matched_menu_item_index(self) -> int | None:
        """The chosen item's index, from 0."""
        return None if self.choice is None else self.choice.place

    @property
    def to_act_on(self) -> Routing:
        """Return it if certain enough to act on; a match within a description needs confirmation."""
        if self.choice is None or self.confidence != LOW or self.kind == SHOW_MENU:
            return self
        return self._replace(kind=CLARIFY, choice=None, candidates=(self.choice,))

    def value(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "confidence": self.confidence,
            "reason": self.reason,
            "matchedMenuItemIndex": self.matched_menu_item_index,
            "choice": None if self.choice is None else self.choice.value(),
            "candidates": [candidate.value() for candidate in self.candidates],
        }


def route(
    member: Member,
    workflows: Iterable[CrewWorkflow],
    text: str,
    surface: str = TERMINAL,
    offered: Sequence[Choice] = (),
) -> Routing:
    """Return a text's meaning outside a run. `offered` are the candidates of a ClarifyChoice that it answers."""
    message = text.strip()
    wanted = _plain(message)
    if not wanted:
        return Routing(SHOW_MENU, EXACT, "nothing was said", message)
    menu = _Menu(member.menu, workflows, surface)
    if wanted.isdecimal() and (offered or menu.items):
        return menu.by_number(wanted, message, offered)
    choices = menu.equal(wanted)
    if choices:
        return menu.one_of(choices, EXACT, "equal to a trigger, cmd, alias, handler or code", message)
    if len(wanted) >= _MIN_QUERY:
        choices, tier = menu.containing(wanted)
        if choices:
            return menu.one_of(choices, *_FOUND[tier], message)
    return Routing(CHAT, LOW, "nothing of the menu is called so", message)


def shown(member: Member, workflows: Iterable[CrewWorkflow], surface: str = TERMINAL) -> list[Choice]:
    """Return the items that a surface shows."""
    return _Menu(member.menu, workflows, surface).items


def candidates(member: Member, workflows: Iterable[CrewWorkflow]) -> list[Choice]:
    """Return all choices at a terminal, with handlers."""
    return list(_Menu(member.menu, workflows, TERMINAL).candidates())


def document_of(workflows: Iterable[CrewWorkflow], path: str) -> CrewWorkflow | None:
    """Return the workflow that begins with a document."""
    inside = path.removeprefix(f"{PACKAGE_MOUNT}/")
    return next((flow for flow in workflows if flow.entry and flow.entry == inside), None)


class _Menu:
    """The candidates on one surface, in order."""

    def __init__(self, menu: Sequence[MenuItem], workflows: Iterable[CrewWorkflow], surface: str) -> None:
        self._menu = menu
        self._workflows = tuple(workflows)
        self.items: list[Choice] = []
        self.handlers: dict[int, list[Choice]] = {}
        for place, item in enumerate(menu):
            if item.surface not in ("", _SHOWN_AS.get(surface, surface)):
                continue
            label = one_line(item.description or item.trigger or item.cmd)
            number, kind = len(self.items) + 1, self._kind(item.does, item.validate)
            own = Choice(number, place, None, label, item.does, item.validate, kind)
            self.items.append(own)
            self.handlers[place] = [
                own._replace(
                    handler=which,
                    label=one_line(handler.match),
                    does=handler.does,
                    kind=self._kind(handler.does, item.validate),
                )
                for which, handler in enumerate(item.handlers)
            ]

    def _kind(self, does: Effect, validate: str) -> str:
        if does.workflow:
            return START
        if does.exec:
            is_document = does.exec.rpartition("/")[2] == "workflow.md"
            return START if is_document or document_of(self._workflows, does.exec) else RUN_SCRIPT
        if does.action.startswith("#"):
            return RUN_PROMPT
        if does.action:
            return _BUILT_IN.get(does.action, INSTRUCT)
        return START if validate else INSTRUCT

    def by_number(self, digits: str, message: str, offered: Sequence[Choice]) -> Routing:
        among = offered or self.items
        number = int(digits) if len(digits.lstrip("0")) <= _MOST_DIGITS else 0
        if 1 <= number <= len(among):
            return self.one_of([among[number - 1]], EXACT, f"number {number} of {len(among)}", message)
        what = "what was offered" if offered else "the menu"
        numbers = "the number 1" if len(among) == 1 else f"numbers from 1 to {len(among)}"
        reason = f"{what} has {numbers}, not {one_line(message, 20)}"
        return Routing(CLARIFY, LOW, reason, message, None, tuple(among))

    def equal(self, wanted: str) -> list[Choice]:
        return [
            choice
            for choice in self.candidates()
            if wanted in (*map(_plain, self._names(choice)), *self._codes(choice))
        ]

    def containing(self, wanted: str) -> tuple[list[Choice], int]:
        words = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")

        def look(texts: Iterable[str], within_words: int) -> int | None:
            places = [
                within_words + (0 if words.search(plain) else 2)
                for text in texts
                if wanted in (plain := _plain(text))
            ]
            return min(places, default=None)

        by_tier: dict[int, list[Choice]] = {}
        for item in self.items:
            tiers = {handler: look(self._names(handler), 0) for handler in self.handlers[item.place]}
            by_handler = any(tier is not None for tier in tiers.values())
            places = [
                look(self._names(item), 0),
                None if by_handler else look((self._menu[item.place].description,), 1),
            ]
            tiers = {item: min((place for place in places if place is not None), default=None), **tiers}
            for choice, tier in tiers.items():
                if tier is not None:
                    by_tier.setdefault(tier, []).append(choice)
        best = min(by_tier, default=0)
        return by_tier.get(best, []), best

    def one_of(self, matches: Sequence[Choice], confidence: str, reason: str, message: str) -> Routing:
        leading = [choice for match in matches for choice in self._led_to(match)]
        choices = list(dict.fromkeys(leading))
        first = choices[0]
        if all((match.place, match.does) == (first.place, first.does) for match in choices):
            return Routing(first.kind, confidence, reason, message, first)
        reason = f"{counted(len(choices), 'candidate')} fit alike: {reason}"
        return Routing(CLARIFY, confidence, reason, message, None, tuple(choices))

    def _led_to(self, choice: Choice) -> Sequence[Choice]:
        does_something = choice.handler is not None or any(choice.does) or choice.validate
        return (choice,) if does_something else self.handlers[choice.place] or (choice,)

    def candidates(self) -> Iterator[Choice]:
        for item in self.items:
            yield item
            yield from self.handlers[item.place]

    def _names(self, choice: Choice) -> Iterator[str]:
        item = self._menu[choice.place]
        if choice.handler is not None:
            yield item.handlers[choice.handler].match
        else:
            yield from filter(None, (item.trigger, item.cmd, *item.aliases))

    def _codes(self, choice: Choice) -> Iterator[str]:
        if choice.handler is None:
            yield from map(_plain, _CODE.findall(self._menu[choice.place].description))


def _plain(text: str) -> str:
    folded = text if text.isascii() else normalize("NFC", text)
    return " ".join(folded.casefold().split()).removeprefix("*").strip()
