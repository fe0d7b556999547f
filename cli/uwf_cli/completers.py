"""What the tab key offers: threads, workflows, crews, hashes, agents. A shell asks by calling `uwf` with VARIABLE
set."""

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
    """Answers a shell that wants to know how a line may go on."""
    from click.shell_completion import shell_complete

    from uwf_cli.tree import uwf

    return shell_complete(uwf, {"obj": invocation}, "uwf", VARIABLE, instruction)


def _offering(find: Callable[[Invocation, str], Iterable[tuple[str, str]]]) -> Any:
    """A completer that offers nothing where anything goes wrong: a shell's line is no place for errors."""

    def offer(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            invocation = context.find_object(Invocation) or Invocation()
            return [CompletionItem(name, help=said) for name, said in find(invocation, incomplete)][:MOST]
        except Exception:
            return []

    return offer


def _threads(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    """Those whose id begins so; where none does, those whose id ends so."""
    from uwf_git.store.threads import Damaged

    heads = invocation.instance.threads.all(archived=True)
    text = incomplete.upper()
    matching = [head for head in heads if head.thread.startswith(text)]
    for head in matching or [head for head in heads if head.thread.endswith(text)]:
        yield head.thread, "" if isinstance(head, Damaged) else f"{head.row.name}: {head.row.title}"


def _registered(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    return [(name, "") for name in invocation.instance.registry.names() if name.startswith(incomplete)]


def _suites(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.ext.evaluation.suite import Suites

    return [(name, "") for name in Suites(invocation.instance.store).names() if name.startswith(incomplete)]


def _crews(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.ext.crews.registry import Crews

    crews = Crews(invocation.instance.store)
    return [(name, "") for name in crews.names() if name.startswith(incomplete)]


def _personas(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    """Crews, and personas as CREW/PERSONA once the crew is known."""
    from uwf_git.ext.crews.registry import Crews

    crews = Crews(invocation.instance.store)
    for name in crews.names():
        if name.startswith(incomplete):
            yield name, ""
        if f"{name}/".startswith(incomplete) or incomplete.startswith(f"{name}/"):
            for each in crews.crew(crews.current(name).hash).members:
                if (address := f"{name}/{each.persona.id}").startswith(incomplete):
                    yield address, each.persona.title


def _speakers(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    """The personas of all crews, by their ids."""
    from uwf_git.ext.crews.registry import Crews

    crews = Crews(invocation.instance.store)
    members = [each for name in crews.names() for each in crews.crew(crews.current(name).hash).members]
    names = {each.persona.id: each.persona.name for each in members}
    return [(id_, name) for id_, name in names.items() if id_.startswith(incomplete)]


def _of_crews(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.ext.crews.registry import Crews

    crews = Crews(invocation.instance.store)
    for name in crews.names():
        if f"{name}/".startswith(incomplete) or incomplete.startswith(f"{name}/"):
            for each in crews.crew(crews.current(name).hash).workflows:
                if (address := f"{name}/{each.id}").startswith(incomplete):
                    yield address, each.title


def _remotes(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.store.remotes import without_password

    remotes = invocation.instance.remotes.all()
    return [(each.name, without_password(each.url)) for each in remotes if each.name.startswith(incomplete)]


def _workflows(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_cli.resolve import file_names

    files = file_names(invocation.location.root)
    names = dict.fromkeys(name for name in files if name.startswith(incomplete))
    known = [*_registered(invocation, incomplete), *_of_crews(invocation, incomplete)]
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


def _hashes(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    store = invocation.instance.store
    store.sync()
    for node in store.index.hashes_with_prefix(incomplete.upper()):
        yield node, ""


def _steps(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.format.kinds import parse_step
    from uwf_git.format.types import STEPNODE

    store = invocation.instance.store
    store.sync()
    for node in store.index.hashes_of_type(STEPNODE):
        if node.startswith(incomplete.upper()):
            yield node, parse_step(store.get(node).payload).role


def _agents(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.config.known_agents import known_names
    from uwf_git.config.read import load_config

    config = load_config(invocation.location.root)
    names = known_names(config.agents, config.agent_clis)
    return [(name, "") for name in names if name.startswith(incomplete)]


def _settings(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    from uwf_git.config.edit import list_values
    from uwf_git.config.settings import KEYS

    names = dict.fromkeys([*list_values(invocation.location.root), *KEYS])
    return [(name, "") for name in names if name.startswith(incomplete)]


complete_thread = _offering(_threads)
complete_name = _offering(_registered)
complete_workflow = _offering(_workflows)
complete_crew = _offering(_crews)
complete_speaker = _offering(_speakers)
complete_persona = _offering(_personas)
complete_hash = _offering(_hashes)
complete_step = _offering(_steps)
complete_agent = _offering(_agents)
complete_setting = _offering(_settings)
complete_remote = _offering(_remotes)
complete_suite = _offering(_suites)
