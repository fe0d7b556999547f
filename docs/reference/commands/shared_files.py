"""Write the man pages and completions that a wheel installs below `share/`: uwf(1), a page for each command and group
of `uwf --help`, and what `uwf completion` prints.

    python docs/reference/commands/shared_files.py FOLDER
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from inspect import cleandoc
from os import environ
from pathlib import Path
from typing import Any

import click
from uwf_cli.command import Group
from uwf_cli.commands.config import completion_script
from uwf_cli.commands.texts import topic
from uwf_cli.tree import uwf

from uwf_git.base.version import VERSION

_COMPLETIONS = {
    "bash": "bash-completion/completions/uwf",
    "zsh": "zsh/site-functions/_uwf",
    "fish": "fish/vendor_completions.d/uwf.fish",
}


def write(folder: Path) -> Iterator[Path]:
    """Write the files below `folder/share`, and yield their paths."""
    texts = {f"share/{place}": completion_script(shell) for shell, place in _COMPLETIONS.items()}
    texts |= {f"share/man/man1/{name}.1": text for name, text in man_pages()}
    for place, text in texts.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        yield path


def man_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    pages = {name: f"uwf-{name.replace(' ', '-')}" for name in uwf.members}
    listed = []
    for heading, names in uwf.sections.items():
        listed += [f".SS {_text(heading)}"]
        for name in names:
            listed += [".TP", rf".BR {_text(pages[name])} (1)", _text(_line(uwf, name))]
    topics = [
        part
        for name in ("environment", "exit-statuses", "storage")
        for part in (f".SH {name.replace('-', ' ').upper()}", *_markdown(topic(name)))
    ]
    yield "uwf", _page("uwf", uwf, ["uwf"], [".SH COMMANDS", *listed, *topics])
    for name, page in pages.items():
        member = uwf.member(name)
        assert member is not None
        path = ["uwf", *name.split()]
        body = [part for entry in _members(member, path) for part in entry]
        yield page, _page(page, member, path, [".SH COMMANDS", *body] if body else [])


def _members(group: click.Command, path: Sequence[str]) -> Iterator[list[str]]:
    for name in group.members if isinstance(group, Group) else ():
        command = group.member(name)
        usage = [*path, name]
        if isinstance(command, Group):
            yield from _members(command, usage)
        else:
            yield [f".SS {_text(' '.join(usage))}", *_synopsis(command, usage), *_body(command)]


def _page(title: str, command: click.Command, path: Sequence[str], more: Sequence[str]) -> str:
    # The date of the sources, not of the build, so that two builds are the same.
    day = datetime.fromtimestamp(int(environ.get("SOURCE_DATE_EPOCH") or 1580601600), UTC).date()
    summary = cleandoc(command.help or "").split("\n\n")[0].split(". ")[0].rstrip(".")
    lines = [
        f'.TH {title.upper()} 1 {day} "uwf-git {VERSION}"',
        *(".SH NAME", rf"{_text(title)} \- {_text(' '.join(summary.split()))}"),
        *(".SH SYNOPSIS", *_synopsis(command, path)),
        *(".SH DESCRIPTION", *_body(command)),
        *more,
        *(".SH EXAMPLES", ".nf", *map(_text, command.examples), ".fi"),
    ]
    if title != "uwf":
        lines += [".SH SEE ALSO", r".BR uwf (1)"]
    return "\n".join(lines) + "\n"


def _synopsis(command: click.Command, path: Sequence[str]) -> list[str]:
    pieces = command.collect_usage_pieces(click.Context(command, info_name=path[-1]))
    return [rf"\fB{_text(' '.join(path))}\fR {_text(' '.join(pieces))}"]


def _body(command: click.Command) -> list[str]:
    context = click.Context(command)
    lines: list[str] = []
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        lines += [".PP", *_lines(paragraph.replace("\b\n", ""))]
    for parameter in command.params:
        record: Any = parameter.get_help_record(context)
        if record is not None and record[1] and (command is uwf or parameter.name not in _SHARED):
            lines += [".TP", rf"\fB{_text(record[0])}\fR", *_lines(record[1])]
    return lines[1:]


_SHARED = ("format", "as_json", "root", "all_projects", "debug", "help", None)


def _line(group: Group, name: str) -> str:
    member = group.members[name]
    return getattr(member, "line", None) or getattr(member, "help", None) or ""


def _markdown(text: str) -> Iterator[str]:
    """A topic of `uwf help`: paragraphs and tables."""
    text = re.sub(
        r"^\|.*\|\n(?=\|--)", "", text.partition("\n\n")[2], flags=re.MULTILINE
    )  # the heads of tables
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.replace("`", ""))
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) > 1 and not cells[0].startswith("--"):
            yield from (".TP", rf"\fB{_text(cells[0])}\fR", _text("; ".join(filter(None, cells[1:]))))
        elif not cells:
            yield _text(line) if line else ".PP"


def _lines(text: str) -> list[str]:
    return [_text(line) for line in text.splitlines() if line.strip()]


def _text(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("\b", "")
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    for written in write(Path(sys.argv[1])):
        print(written)
