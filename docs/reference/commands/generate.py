"""Write the generated parts of the command reference: the help block of each command, between `<!-- help: NAME -->`
and `<!-- end -->`, the states of threads, between `<!-- states -->` and `<!-- end -->`, and README.md, which is a cheat
sheet and the topics of `uwf help`.

    python docs/reference/commands/generate.py            write them
    python docs/reference/commands/generate.py --check    exit with 1 if a file would change
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import click
from uwf_cli.command import Group
from uwf_cli.commands.texts import topic
from uwf_cli.tree import uwf

from uwf_git.base.thread_states import ThreadState

HERE = Path(__file__).parent
TOPICS = ("output", "exit-statuses", "threads", "storage", "environment")
PAGES = (
    "store",
    "workflows",
    "crews",
    "threads",
    "workspaces",
    "landing",
    "fleets",
    "chat",
    "costs",
    "evaluation",
    "review",
    "ci",
    "effects",
    "sharing",
    "nodes",
    "tools",
    "settings",
    "trust",
)
"""The pages, in the order in which their examples run."""

_SHARED = ("format", "as_json", "root", "debug", "help")
_BLOCK = re.compile(r"<!-- help: (.*?) -->\n.*?<!-- end -->", re.DOTALL)
_STATES = re.compile(r"<!-- states -->\n.*?<!-- end -->", re.DOTALL)
_INTRODUCTION = """\
# Commands

Every command with its help, JSON and examples. The examples of these pages form one shell session, in the order of the
pages, and show JSON:

```console
$ export UWF_FORMAT=json
$ uwf init
{
  "store": "…/.uncaged/workflow/store.git"
}
$ uwf workflow put examples/solve-issue.yaml >/dev/null
$ uwf workflow show slove-issue
{"error":{"code":"not_found","message":"no workflow 'slove-issue'","hint":"did you mean \\"solve-issue\\"?"}}
$ echo $?
3
```
"""


def commands(group: Group, path: str = "uwf") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands of a group with their full names, in the order of its help."""
    for names in group.sections.values():
        for name in names:
            member = group.member(name)
            if isinstance(member, Group):
                yield from commands(member, f"{path} {name}")
            elif member is not None:
                yield f"{path} {name}", member


def block(name: str, command: click.Command) -> str:
    """Return a command's help, without examples and the options that all commands share."""
    command = copy(command)
    command.params = [each for each in command.params if each.name not in _SHARED]
    formatter = click.HelpFormatter(width=100)
    click.Command.format_help(command, click.Context(command, info_name=name), formatter)
    return f"<!-- help: {name} -->\n```text\n{formatter.getvalue().strip()}\n```\n<!-- end -->"


def states() -> str:
    """Return the table of states."""
    rows = [
        f"| `{state.word}` | {state.value.meaning} | {state.actor.value} | {state.exit_status} |"
        f" {f'`{state.hook}`' if state.hook else ''} |"
        for state in ThreadState
    ]
    header = "| Status | The thread | Waits for | Exit status | Hook |\n|---|---|---|--:|---|\n"
    return "<!-- states -->\n" + header + "\n".join(rows) + "\n<!-- end -->"


def cheat_sheet(sections: dict[str, str]) -> str:
    """Return the page README.md. `sections` maps commands to the pages and anchors of their sections."""
    parts = [_INTRODUCTION]
    for heading, names in uwf.sections.items():
        rows = []
        for name in names:
            member = uwf.member(name)
            found = (
                commands(member, f"uwf {name}") if isinstance(member, Group) else [(f"uwf {name}", member)]
            )
            rows += [f"| [`{each}`]({sections[each]}) | {summary(command)} |" for each, command in found]
        parts.append(f"## {heading}\n\n| Command | |\n|---|---|\n" + "\n".join(rows) + "\n")
    for name in TOPICS:
        parts.append(re.sub(r"^#", "##", topic(name), flags=re.MULTILINE))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def summary(command: click.Command | None) -> str:
    """Return the first paragraph of a command's help on one line."""
    assert command is not None and command.help
    return " ".join(command.help.split("\n\n")[0].split()).replace("|", "\\|")


def files() -> dict[Path, str]:
    """Return the pages as they should be."""
    known = dict(commands(uwf))
    written, sections = {}, {}
    for page in PAGES:
        text = (HERE / f"{page}.md").read_text(encoding="utf-8")
        for heading, name in re.findall(r"^## (`.*)\n\n<!-- help: (.*) -->$", text, flags=re.MULTILINE):
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            sections[name] = f"{page}.md#{anchor}"
        written[HERE / f"{page}.md"] = text
    if unknown := known.keys() ^ sections.keys():
        sys.exit(f"no command, or no section: {', '.join(sorted(unknown))}")
    sheet = cheat_sheet(sections)
    for path, text in written.items():
        text = _STATES.sub(lambda match: states(), text)
        written[path] = _BLOCK.sub(lambda match: block(match[1], known[match[1]]), text)
    return {**written, HERE / "README.md": sheet}


def main() -> None:
    stale = [
        path
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"run make reference: {', '.join(path.name for path in stale)} would change")
        return
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
