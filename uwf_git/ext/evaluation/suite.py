"""Suites: `refs/uwf/evals/<name>` points at commits whose trees only grow, so that two machines' suites can
be merged.

A commit adds nodes: cases, removals, trials, scores, runs. Its parents are the commit before and the last
commits of the threads involved, so nothing is copied, and threads' contents outlive their removal. A changed
case is a new one that replaces it. In a commit's tree:

README.md                            what a suite is
suite/nodes/                         the Suite node and the types of the others
cases/csv-<hash>/{README.md,nodes/}  a case
removed/nodes/                       removals of cases
results/4K/nodes/                    trials, scores and runs, by the first two characters of their hashes
files/<id of a tree>/                fixtures, and their final states
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.evaluation import SUITES
from uwf_git.ext.evaluation.node_types import (
    CASE,
    CASE_REMOVAL,
    OF_SUITES,
    SCORE,
    SUITE,
    SUITE_RUN,
    TRIAL,
)
from uwf_git.ext.evaluation.records import (
    Case,
    Result,
    Score,
    SuiteRun,
    Trial,
    parse_case,
    parse_run,
    parse_score,
    parse_trial,
)
from uwf_git.plugin import (
    BLOB_MODE,
    TREE_MODE,
    Entry,
    Hash,
    HeadMoved,
    IndexedStore,
    Invalid,
    NotFound,
    Oid,
    Usage,
    counted,
    fenced,
    harmless,
    layout,
    markdown,
    name_problem,
    nearest,
    schemas,
)

FIXTURES = "files/"
"""The folder with folders of files, each by the id of its tree."""


def suite_message(name: str, node: Hash, added: Mapping[str, int]) -> str:
    """Return a commit's message with counts of additions; without any it is a merge."""
    counts = [counted(number, word) for word, number in added.items() if number]
    return layout.message(f"suite {name}: {', '.join(counts) or 'two sides'}", {SUITES.trailer: node})


def case_folder(name: str, node: Hash) -> str:
    return f"cases/{layout.slug(name)}-{node}"


def result_folder(node: Hash) -> str:
    return f"results/{node[:2]}"


def suite_page(name: str) -> bytes:
    """Return a suite's README.md, without its growing contents."""
    shown = markdown.code(name)
    page = (
        f"# Suite {shown}\n\nCases by which workflows and agents are judged, and what came of them.\n\n"
        "- `cases/` has a folder for each case.\n"
        "- `results/` has trials, what judges said of them, and runs.\n"
        "- `files/` has the folders that cases begin with, and what became of these.\n"
        "- `removed/` takes cases out again: here nothing is ever deleted.\n\n"
        f"`uwf eval show {name}` lists them, `uwf eval run {name}` runs them.\n"
    )
    return harmless(page).encode("utf-8")


def case_page(case: Mapping[str, Any]) -> bytes:
    rows = []
    if role := case.get("role"):
        rows.append(("the step", markdown.code(case["step"])))
        rows.append(("is done again by", markdown.code(role)))
    elif "start" in case:
        rows.append(("the task of", markdown.code(case["start"])))
        rows += [("had come to", markdown.code(case["step"]))] if "step" in case else []
    rows += (
        [("files", f"[{case['fixture'][:10]}](../../files/{case['fixture']})")] if "fixture" in case else []
    )
    judges = ", ".join(markdown.inline(judge["name"]) for judge in case.get("judges", ()))
    rows += [("judged by", judges)] if judges else []
    rows += [("tags", ", ".join(map(markdown.inline, case["tags"])))] if "tags" in case else []
    rows += [
        (markdown.inline(key), markdown.inline(str(limit)))
        for key, limit in sorted(case.get("limits", {}).items())
    ]
    parts = [f"# {markdown.inline(case['name'])}"]
    parts += [markdown.quoted(case["prompt"])] if case.get("prompt", "").strip() else []
    parts += [markdown.table(("", ""), rows)] if rows else []
    if "expected" in case:
        expected = json.dumps(case["expected"], ensure_ascii=False, indent=2, sort_keys=True)
        parts += ["## Expected", fenced(expected, "json")]
    return harmless("\n\n".join(parts) + "\n").encode("utf-8")


_TRIES = 10

MOST_COMMITS = 400
"""That what is added at once may stand on: a commit has a parent for each."""


def lock_of(name: str) -> str:
    return f"suite-{name}"


class Suite(NamedTuple):
    """A suite at a commit. `cases` are the current ones by name; `named` names all cases ever; others are by
    hash; `runs` are oldest first."""

    name: str
    commit: Oid
    cases: tuple[Case, ...]
    named: Mapping[Hash, str]
    every: Mapping[Hash, Case]
    trials: Mapping[Hash, Trial]
    scores: Mapping[Hash, Score]
    runs: tuple[SuiteRun, ...]

    def results(self, run: SuiteRun) -> list[Result]:
        """Return a run's results by case and repeat. Missing ones, in a hand-edited suite, are skipped."""
        return [
            Result(
                self.named[result.case],
                self.every[result.case],
                self.trials[result.trial],
                tuple(self.scores[score] for score in result.scores if score in self.scores),
                result.errors,
            )
            for result in run.results
            if result.case in self.every and result.trial in self.trials
        ]

    def case(self, text: str) -> Case:
        """Return a case by name or hash prefix. Raises NotFound, Usage."""
        cases = [case for case in self.cases if self.named[case.hash] == text]
        if not cases and len(text) >= 4:
            cases = [case for case in self.cases if case.hash.startswith(text.upper())]
        if not cases:
            hint = nearest(text, self.named.values()) or f"see: uwf eval show {self.name}"
            raise NotFound(f"suite {self.name!r} has no case {text!r}", hint)
        if len(cases) > 1:
            raise Usage(f"{text} is {counted(len(cases), 'case')} of {self.name}", "give more characters")
        return cases[0]


class Additions(NamedTuple):
    """Additions to a suite: cases, removed cases' hashes, trials, scores, runs, git trees, and the commits
    they depend on."""

    cases: Sequence[Case] = ()
    removed: Sequence[Hash] = ()
    trials: Sequence[Trial] = ()
    scores: Sequence[Score] = ()
    runs: Sequence[SuiteRun] = ()
    files: Sequence[str] = ()
    commits: Sequence[Oid] = ()


class Suites:
    """The suites of one store."""

    def __init__(self, store: IndexedStore) -> None:
        self._store = store
        self._repository = store.repository

    def names(self) -> list[str]:
        names = self._repository.ref_names(SUITES.prefix)
        return sorted(name.removeprefix(SUITES.prefix) for name in names)

    def tip(self, name: str) -> Oid:
        """Return a suite's newest commit. Raises NotFound with the nearest name."""
        oid = None if name_problem(name) else self._repository.ref(SUITES.prefix + name)
        if oid is None:
            raise NotFound(f"no suite {name!r}", nearest(name, self.names()) or "see: uwf eval list")
        return oid

    def read(self, name: str, commit: Oid | None = None) -> Suite:
        """Return a suite at a commit, by default the newest. Raises NotFound, StoreDamaged."""
        tip = commit or self.tip(name)
        self._store.index_commit(tip)
        every: dict[Hash, Case] = {}
        gone: set[Hash] = set()
        trials: dict[Hash, Trial] = {}
        scores: dict[Hash, Score] = {}
        runs: list[SuiteRun] = []
        for node in self._nodes(self._repository.commit(tip).tree):
            type_, payload, time = self._store.get(node)
            if type_ == CASE:
                every[node] = parse_case(node, payload)
                gone.update(every[node].replaces)
            elif type_ == CASE_REMOVAL:
                gone.add(payload["case"])
            elif type_ == TRIAL:
                trials[node] = parse_trial(node, payload, time)
            elif type_ == SCORE:
                scores[node] = parse_score(node, payload, time)
            elif type_ == SUITE_RUN:
                runs.append(parse_run(node, payload, time))
        cases = sorted(
            (case for case in every.values() if case.hash not in gone), key=lambda case: case[1::-1]
        )
        runs.sort(key=lambda run: (run.time, run.hash))
        return Suite(name, tip, tuple(cases), _named(cases, every), every, trials, scores, tuple(runs))

    def _nodes(self, root: Oid) -> Iterator[Hash]:
        folders = {entry.name: entry.oid for entry in self._repository.tree(root) if entry.is_tree}
        for case in self._repository.tree(folders["cases"]) if "cases" in folders else ():
            yield Hash(case.name[-13:])
        tops = [folders["removed"]] if "removed" in folders else []
        if "results" in folders:
            tops += [shard.oid for shard in self._repository.tree(folders["results"])]
        for top in tops:
            for nodes in self._repository.tree(top):
                for file in self._repository.tree(nodes.oid):
                    node = layout.node_in_path(f"nodes/{file.name}")
                    if node is not None:
                        yield node

    def add(self, name: str, added: Additions) -> Oid:
        """Add to a suite, created by its first cases; return its newest commit. Known things are skipped.
        Moves `refs/uwf/evals/<name>`. Raises Invalid for the name, NotFound for results of a missing suite,
        HeadMoved if it keeps moving."""
        if problem := name_problem(name):
            raise Invalid(f"the name {name!r} of a suite {problem}", "choose another: --to NAME")
        for _ in range(_TRIES):
            old = self._repository.ref(SUITES.prefix + name)
            if old is None and not added.cases:
                raise NotFound(f"suite {name!r} is gone, so nothing is added to it", "see: uwf eval list")
            with self._store.together():
                new = self._grown(name, old, added)
                if new == old:
                    return new
                try:
                    self._repository.put_ref(SUITES.prefix + name, old, new)
                    self._store.registers(SUITES.prefix + name)
                except HeadMoved:
                    continue
                self._store.index_commit(new)
                self._store.moved(SUITES.prefix + name, new, new)
            return new
        raise HeadMoved(f"suite {name!r} moves too often to be added to", "repeat")

    def remove(self, name: str) -> None:
        """Delete a suite's ref. Raises NotFound, HeadMoved."""
        self._repository.delete_ref(SUITES.prefix + name, self.tip(name))

    def _grown(self, name: str, old: Oid | None, added: Additions) -> Oid:
        repository = self._repository
        node = self._store.put(SUITE, {"name": name}, timestamp=0)
        if old is None:
            tree = repository.grown(None, self._first(name, node))
            present: set[Hash] = set()
        else:
            tree = repository.commit(old).tree
            present = set(self._nodes(tree))
        files: dict[str, Entry] = {}
        counts = dict.fromkeys(("case", "removed case", "result", "run"), 0)
        for what, folder, added_node in self._put(added):
            if added_node not in present:
                present.add(added_node)
                counts[what] += 1
                files[f"{folder}/{layout.node_file(added_node)}"] = self._entry(
                    self._store.blob_of(added_node)
                )
        for case in added.cases:
            folder = case_folder(case.name, case.hash)
            if f"{folder}/{layout.node_file(case.hash)}" in files:
                files[f"{folder}/README.md"] = self._entry(repository.write_blob(case_page(case.payload())))
        if old is not None and not files:
            return old
        for oid in added.files:
            files[FIXTURES + oid] = Entry(TREE_MODE, "", Oid(hex=oid))
        tree = repository.grown(tree, files)
        text = suite_message(name, node, counts)
        before = [old] if old else []
        return repository.write_commit(tree, [*before, *dict.fromkeys(added.commits)], repository.user, text)

    def _first(self, name: str, node: Hash) -> dict[str, Entry]:
        blobs = {
            ".gitattributes": self._repository.write_blob(layout.GITATTRIBUTES),
            "README.md": self._repository.write_blob(suite_page(name)),
        }
        for item in (schemas.META, *OF_SUITES, node):
            blobs[f"suite/{layout.node_file(item)}"] = self._store.blob_of(item)
        return {path: self._entry(oid) for path, oid in blobs.items()}

    def _put(self, added: Additions) -> Iterator[tuple[str, str, Hash]]:
        """Store the nodes; yield name, folder and hash. Cases have no timestamps, so that equal ones are the
        same."""
        put = self._store.put
        for case in added.cases:
            put(CASE, case.payload(), timestamp=0)
            yield "case", case_folder(case.name, case.hash), case.hash
        for removed in added.removed:
            yield "removed case", "removed", put(CASE_REMOVAL, {"case": removed}, timestamp=0)
        results: Iterable[tuple[str, Hash, dict[str, object]]] = (
            *(("result", TRIAL, trial.payload()) for trial in added.trials),
            *(("result", SCORE, score.payload()) for score in added.scores),
            *(("run", SUITE_RUN, run.payload()) for run in added.runs),
        )
        for what, type_hash, payload in results:
            node = put(type_hash, payload)
            yield what, result_folder(node), node

    def _entry(self, blob: Oid) -> Entry:
        return Entry(BLOB_MODE, "", blob)


def _named(cases: Sequence[Case], every: Mapping[Hash, Case]) -> dict[Hash, str]:
    names = [case.name for case in cases]
    counting = {case.hash for case in cases}
    return {
        node: f"{case.name}-{node[:4]}" if node in counting and names.count(case.name) > 1 else case.name
        for node, case in every.items()
    }
