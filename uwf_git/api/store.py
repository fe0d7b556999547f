"""A store for programs: workflows, threads, remotes."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.api.thread import Budget, Thread, ThreadSafeStore, Workflow, folder_of
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import nearest
from uwf_git.format.ids import Hash, complete
from uwf_git.store.history import Head
from uwf_git.store.location import Location, is_enabled, locate
from uwf_git.store.location import init as make

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.verify.findings import Finding
    from uwf_git.workflow.compile import Compiled


def open_instance(path: str | Path | None = None) -> Instance:
    """Open a store, creating it if needed, for what an extension does with it."""
    from uwf_git.store.instance import Instance

    location = _location(path)
    make(location)
    return Instance(location)


def open(path: str | Path | None = None) -> Store:
    """Open the store of the environment and current folder, as the command does, or the one in a folder: a
    storage root or a repository. Raises NotFound."""
    return Store(_location(path))


def init(path: str | Path | None = None) -> Store:
    """Open a store, creating it if needed."""
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


class Store(ThreadSafeStore):
    """An open store, for any number of threads of a program. Warnings are Python warnings."""

    # Workflows and threads

    @property
    def workflows(self) -> Workflows:
        """The registered workflows."""
        return Workflows(self)

    def start(
        self,
        workflow: Workflow | str,
        prompt: str,
        *,
        budget: Budget | None = None,
        cwd: str | Path | None = None,
        persona: str = "",
        workspace: str | None = None,
    ) -> Thread:
        """Start a thread of a workflow or its name, without running a step. `persona` is the default
        speaker's id for a crew's workflow. `workspace` is where its agents work, as `--workspace`; None for
        the folder of each step."""
        from uwf_git.api.start import Start, Version, start

        instance = self._instance
        if not prompt.strip():
            raise Usage("the prompt is empty", "describe the task")
        node = Hash((self.workflows.get(workflow) if isinstance(workflow, str) else workflow).hash)
        version = Version(instance.registry.commit_for(node), node, instance.registry.workflow(node))
        limits = budget.limits() if budget is not None else {}
        from uwf_git.workspaces.options import parse_option

        option = None if workspace is None else parse_option(workspace)
        what = Start(prompt, limits, folder_of(cwd), persona=persona, workspace=option)
        return Thread(self, start(instance, version, what).thread)

    def threads(self, *, ended: bool = False) -> list[Thread]:
        """Return the active threads, or all, newest first."""
        heads = self._instance.threads.all(archived=ended)
        return [Thread(self, head.thread) for head in heads if isinstance(head, Head)]

    def thread(self, id: str) -> Thread:
        """Return a thread by id, by at least four unique first or last characters, or by "@" (newest), "@2"
        and so on. Raises NotFound, Usage."""
        return Thread(self, self._instance.threads.find(id))

    # Other stores

    def add_remote(self, name: str, url: str) -> None:
        """Add a remote: a git repository's URL or path."""
        self._instance.remotes.add(name, url)

    def pull(self, remote: str | None = None) -> list[Thread]:
        """Fetch, verify and adopt a remote's threads; return new and moved ones. In a divergence, yours
        becomes a fork. Raises RemoteFailed, and StoreDamaged for invalid data, which is left out."""
        from uwf_git.api.exchange import pull

        return [Thread(self, thread) for thread in pull(self._exchange(remote))]

    def push(self, remote: str | None = None, *threads: Thread) -> None:
        """Push what a remote lacks, or only these threads. Raises HeadMoved if a thread moved there (a pull
        keeps both sides), RemoteFailed."""
        from uwf_git.api.exchange import push

        push(self._exchange(remote), [thread._id for thread in threads])

    def verify(self, *threads: Thread) -> list[Finding]:
        """Verify every node, commit, page and decision of the store or these threads. Return findings with
        `code`, `message`, `thread` and `step`."""
        from uwf_git.api.check import check

        return check(self._instance, [thread._id for thread in threads]).findings


class Workflows:
    """The registered workflows, in order of their names."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, source: str | Path | Mapping[str, Any]) -> Workflow:
        """Register a workflow from a YAML file or a mapping. Unchanged content makes no version. Raises
        Invalid with all `findings`; warns of a rehearsal's findings."""
        compiled = _compiled(source)
        for finding in compiled.warnings:
            warnings.warn(f"line {finding.line}: {finding.message}", stacklevel=2)
        version = self._store._instance.registry.put(compiled)
        return Workflow(compiled.workflow.name, version.hash)

    def get(self, name: str) -> Workflow:
        """Return a workflow by name, "NAME~2" for the second version before the newest, or by hash. Raises
        NotFound."""
        instance = self._store._instance
        registry = instance.registry
        if name.partition("~")[0] in registry.names():
            version = registry.named(name)
            return Workflow(name.partition("~")[0], version.hash)
        from uwf_git.format.types import versions

        instance.store.sync()
        index = instance.store.index
        nodes = [item for kind in versions("workflow") for item in index.hashes_of_type(kind)]
        try:
            node = Hash(complete(name.strip().upper(), nodes, "workflow"))
        except NotFound:
            hint = nearest(name, registry.names()) or "see: uwf workflow list"
            raise NotFound(f"no workflow {name!r}", hint) from None
        return Workflow(registry.workflow(node).name, node)

    def list(self) -> list[Workflow]:
        """Return all registered workflows."""
        return [self.get(name) for name in sorted(self._store._instance.registry.names())]

    def remove(self, name: str) -> None:
        """Unregister a workflow. Threads keep their version."""
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
