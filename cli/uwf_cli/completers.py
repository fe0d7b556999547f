"""Shell completion of threads, workflows, crews, hashes and agents. A shell calls `uwf` with VARIABLE set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli.invocation import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_UWF_COMPLETE"
MOST = 100


def complete(invocation: Invocation, instruction: str) -> int:
    from click.shell_completion import shell_complete

    from uwf_cli.tree import uwf

    return shell_complete(uwf, {"obj": invocation}, "uwf", VARIABLE, instruction)


def offering(find: Callable[[Invocation, str], Iterable[tuple[str, str]]]) -> Any:
    """A completer that offers nothing on errors."""

    def offer(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            invocation = context.find_object(Invocation) or Invocation()
            return [CompletionItem(name, help=said) for name, said in find(invocation, incomplete)][:MOST]
        except Exception:
            return []

    return offer


def _registered(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    return [(name, "") for name in invocation.instance.registry.names() if name.startswith(incomplete)]


def _of(what: str, place: Callable[[Invocation], Any]) -> Any:
    def find(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
        from uwf_git.api import completion

        found: Iterable[tuple[str, str]] = getattr(completion, what)(place(invocation), incomplete)
        return found

    return offering(find)


def _store(invocation: Invocation) -> Any:
    return invocation.instance


def _root(invocation: Invocation) -> Any:
    return invocation.location.root


def names_of(record: str) -> Any:
    def find(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
        from uwf_git.api.completion import names

        return names(invocation.instance, record, incomplete)

    return offering(find)


def _workflows(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.api.completion import workflows_of_packages
    from uwf_git.api.workflows import file_names

    files = file_names(invocation.location.root)
    names = dict.fromkeys(name for name in files if name.startswith(incomplete))
    known = [*_registered(invocation, incomplete), *workflows_of_packages(invocation.instance, incomplete)]
    return [*known, *((name, "") for name in names), *_files(incomplete)]


def _files(incomplete: str) -> Iterable[tuple[str, str]]:
    folder, _, begin = incomplete.rpartition("/")
    inside = Path(folder or ("/" if incomplete.startswith("/") else "."))
    for path in sorted(inside.iterdir()) if inside.is_dir() else ():
        if path.name.startswith(begin) and (begin or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{path}/", ""
            elif path.suffix in (".yaml", ".yml"):
                yield str(path), ""


complete_thread = _of("threads", _store)
complete_name = offering(_registered)
complete_workflow = offering(_workflows)
complete_crew = names_of("crew")
complete_speaker = _of("speakers", _store)
complete_hash = _of("hashes", _store)
complete_step = _of("steps", _store)
complete_agent = _of("agents", _root)
complete_setting = _of("settings", _root)
complete_remote = _of("remotes", _store)
complete_suite = names_of("suite")
