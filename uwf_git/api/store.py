"""A store for programs: its workflows, its threads, other stores."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.api.opened import Opened
from uwf_git.api.thread import Budget, Thread, Workflow, folder_of
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import nearest
from uwf_git.format.ids import Hash, complete
from uwf_git.store.history import Head
from uwf_git.store.location import Location, is_enabled, locate
from uwf_git.store.location import init as make

if TYPE_CHECKING:
    from uwf_git.verify.findings import Finding
    from uwf_git.workflow.compile import Compiled


def open(path: str | Path | None = None) -> Store:
    """Open a store: that of the environment and the current folder, as the command does, or the one in a folder, which
    is a storage root or a repository that holds a store. Raises NotFound if there is none."""
    return Store(_location(path))


def init(path: str | Path | None = None) -> Store:
    """Open a store, and make it first if there is none."""
    location = _location(path)
    make(location)
    return Store(location)


def _location(path: str | Path | None) -> Location:
    if path is None:
        return locate(None, os.environ, Path.cwd())
    folder = Path(path).expanduser().absolute()
    for git_dir in (folder / ".git", folder):
        if is_enabled(git_dir):
            root = locate(None, os.environ, folder).root
            return Location(root, git_dir, here=True)
    return locate(str(folder), os.environ, folder)


class Store(Opened):
    """An open store. It may be used by several threads of a program at once: each has files and an index of its own.
    What would be a warning of the command is a warning of Python."""

    # Workflows and threads

    @property
    def workflows(self) -> Workflows:
        """Its registered workflows."""
        return Workflows(self)

    def start(
        self,
        workflow: Workflow | str,
        prompt: str,
        *,
        budget: Budget | None = None,
        cwd: str | Path | None = None,
        persona: str = "",
    ) -> Thread:
        """Start a thread of a workflow, or of the one of that name. Nothing is executed yet. `persona` is the id of who
        speaks in a workflow of a crew that leaves that open."""
        from uwf_git.api.start import Start, Version, start

        instance = self._instance
        if not prompt.strip():
            raise Usage("the prompt is empty", "say what is to be done")
        node = Hash((self.workflows.get(workflow) if isinstance(workflow, str) else workflow).hash)
        version = Version(instance.registry.commit_for(node), node, instance.registry.workflow(node))
        limits = budget.limits() if budget is not None else {}
        what = Start(prompt, limits, folder_of(cwd), persona=persona)
        return Thread(self, start(instance, version, what))

    def threads(self, *, ended: bool = False) -> list[Thread]:
        """Return its active threads, or all, newest first."""
        heads = self._instance.threads.all(archived=ended)
        return [Thread(self, head.thread) for head in heads if isinstance(head, Head)]

    def thread(self, id: str) -> Thread:
        """Return a thread by its id, or four characters and more with which only its id begins or ends; "@" is the
        newest, "@2" the one before it. Raises NotFound, Usage."""
        return Thread(self, self._instance.threads.find(id))

    # Other stores

    def add_remote(self, name: str, url: str) -> None:
        """Give another store a name: the address or the path of a git repository."""
        self._instance.remotes.add(name, url)

    def pull(self, remote: str | None = None) -> list[Thread]:
        """Fetch what a remote has, verify it and take it over; return the threads that are new or have moved. Where
        both sides went on, yours becomes a thread of its own. Raises RemoteFailed, and StoreDamaged for what is
        invalid, which is left out."""
        from uwf_git.api.exchange import pull

        exchange = self._exchange(remote)
        return [Thread(self, thread) for thread in pull(self._instance, exchange)]

    def push(self, remote: str | None = None, *threads: Thread) -> None:
        """Push to a remote what it hasn't got, or only these threads. Raises HeadMoved if somebody moved a thread there
        first (a pull keeps both sides), RemoteFailed."""
        from uwf_git.api.exchange import push

        push(self._instance, self._exchange(remote), [thread._id for thread in threads])

    def verify(self, *threads: Thread) -> list[Finding]:
        """Check every node, commit, page and decision of the store, or of these threads, and return what is wrong: each
        finding has a `code`, a `message`, and the `thread` and `step` it is about."""
        from uwf_git.api.check import verify

        return verify(self._instance, [thread._id for thread in threads])


class Workflows:
    """The registered workflows of a store, in the order of their names."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, source: str | Path | Mapping[str, Any]) -> Workflow:
        """Register a workflow: a YAML file, or its content as a mapping. The same content makes no new version. Raises
        Invalid with all `findings` for one with errors; warns of what a rehearsal finds."""
        compiled = _compiled(source)
        for finding in compiled.warnings:
            warnings.warn(f"line {finding.line}: {finding.message}", stacklevel=2)
        version = self._store._instance.registry.put(compiled)
        return Workflow(compiled.workflow.name, version.hash)

    def get(self, name: str) -> Workflow:
        """Return the newest version of a workflow, by its name, "NAME~2" for the version two before, or a workflow by
        its hash or the beginning of one. Raises NotFound."""
        instance = self._store._instance
        registry = instance.registry
        if name.partition("~")[0] in registry.names():
            version = registry.named(name)
            return Workflow(name.partition("~")[0], version.hash)
        from uwf_git.format.types import versions

        instance.store.sync()
        index = instance.store.index
        nodes = [each for kind in versions("workflow") for each in index.hashes_of_type(kind)]
        try:
            node = Hash(complete(name.strip().upper(), nodes, "workflow"))
        except NotFound:
            hint = nearest(name, registry.names()) or "see: uwf workflow list"
            raise NotFound(f"no workflow {name!r}", hint) from None
        return Workflow(registry.workflow(node).name, node)

    def list(self) -> list[Workflow]:
        """Return all of them."""
        return [self.get(name) for name in sorted(self._store._instance.registry.names())]

    def remove(self, name: str) -> None:
        """Unregister a workflow. Threads keep the version that they run."""
        self._store._instance.registry.remove(name)

    def __iter__(self) -> Iterator[Workflow]:
        return iter(self.list())


def _compiled(source: str | Path | Mapping[str, Any]) -> Compiled:
    from uwf_git.workflow.compile import compile_source, foresee
    from uwf_git.workflow.source import parse_source, read_source

    if isinstance(source, Mapping):
        text = json.dumps(source, ensure_ascii=False, indent=2) + "\n"  # JSON is YAML
        compiled = compile_source(parse_source(text.encode(), "workflow.yaml"))
    else:
        compiled = compile_source(read_source(Path(source)))
    return compiled._replace(warnings=foresee(compiled))
