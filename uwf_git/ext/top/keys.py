"""The keys, and their help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from uwf_git.ext.top.lines import Line
from uwf_git.plugin import extensions


class Key(NamedTuple):
    """`names` as textual has them, `action` of the application, and what `?` says."""

    names: tuple[str, ...]
    action: str
    label: str
    words: str


KEYS = (
    Key(("j", "down"), "down", "j ↓", "next thread; in an opened one the next step or line"),
    Key(("k", "up"), "up", "k ↑", "the one before"),
    Key(("pagedown",), "page_down", "PgDn", "a page on"),
    Key(("pageup",), "page_up", "PgUp", "a page back"),
    Key(("home", "g"), "home", "g Home", "to the beginning"),
    Key(("end", "G"), "end", "G End", "to the end; of live output: follow it"),
    Key(("left",), "left", "← →", "the beginning or the rest of long lines"),
    Key(("right",), "right", "", ""),
    Key(("enter",), "open", "Enter", "open the thread; of a step its changes"),
    Key(("escape",), "close", "Esc", "back; in the list, no marks and no filter"),
    Key(("tab",), "next_tab", "Tab", "live, steps, diff, prompt"),
    Key(("shift+tab",), "last_tab", "", ""),
    Key(("d",), "diff", "d", "all changes of the thread"),
    Key((), "", "1 … 9", "in the list, answer with this option; in an opened thread, show this step"),
    Key(
        ("a",),
        "answer",
        "a",
        "answer with words, fill in a form, raise a budget; a remark to a running agent",
    ),
    Key(("r",), "retry", "r", "run; of a failed thread, try again"),
    Key(("s",), "stop", "s", "stop: end the step in progress, and pause"),
    Key(("p",), "pause", "p", "pause after the step in progress; resume"),
    Key(("f",), "fork", "f", "fork after a step"),
    Key(("w",), "shell", "w", "a shell in the thread's worktree"),
    Key(("space",), "mark", "Space", "mark; r s p and those below go to all that are marked"),
    Key(("*",), "mark_all", "*", "mark all of the list, or none"),
    Key(("/",), "filter", "/", "filter: the options of uwf thread list, and text"),
    Key(("n",), "last_night", "n", "what failed last night: the view last-night; and back"),
    Key((":",), "command", ":", "any uwf command; % is the thread, or those marked"),
    Key(("?",), "help", "?", "these keys"),
    Key(("q",), "quit", "q", "quit; agents go on"),
)


def actions() -> dict[str, str]:
    """Return the actions of the application by key."""
    return {name: key.action for key in KEYS for name in key.names}


def of_extensions() -> dict[str, extensions.ThreadAction]:
    """Return the actions of extensions by the first letters of their names, as far as these are free."""
    rows: dict[str, extensions.ThreadAction] = {}
    own = actions()
    for row in extensions.thread_actions():
        letter = row.name[:1]
        if letter not in own:
            rows.setdefault(letter, row)
    return rows


def help_lines() -> Iterator[Line]:
    yield Line("keys", "bold")
    rows = [(key.label, key.words) for key in KEYS if key.label]
    rows[-4:-4] = [(letter, row.label.lower()) for letter, row in of_extensions().items()]
    for label, words in rows:
        yield Line(f"  {label:<8} {words}")
