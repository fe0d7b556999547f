"""The pages of threads are verified, with their commits and by a tree alone."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from conftest import Uwf
from forged import WORKFLOW, Forger, stepped

from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, pages
from uwf_git.store.history import Head
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.verify.refs import Verifier
from uwf_git.verify.uncommitted import MadeKnown, MadeObjects, TreeHistory
from uwf_git.verify.whole import local_refs, verify_refs
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source


@pytest.fixture
def thread(instance: Instance) -> Head:
    """A thread without a step."""
    compiled = compile_source(parse_source(WORKFLOW.encode(), "pair.yaml"))
    version = Oid(hex=instance.registry.put(compiled).commit)
    return instance.threads.head(instance.threads.start(version, Start(compiled.hash, "# tides")))


def grown(instance: Instance, head: Head, steps: int) -> Head:
    for _ in range(steps):
        write = head.row.number % 2 == 0
        output = {"title": "A | *title*"} if write else {"approved": False}
        head = stepped(instance, head, "writer" if write else "critic", output)
    return head


def page(instance: Instance, path: str, commit: Oid) -> str:
    git = ["git", "--git-dir", str(instance.location.git_dir), "show", f"{commit}:{path}"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout


def found(instance: Instance) -> list[str]:
    repository = Repository(instance.location.git_dir)
    return [each.code for each in verify_refs(repository, local_refs(repository), 95_000_000).findings]


def alone(instance: Instance, head: Head) -> list[str]:
    """What is wrong with the tree of a thread, without its commits."""
    repository = Repository(instance.location.git_dir)
    store = Store(repository, Overlay())
    known = MadeKnown(MadeObjects(repository), store)
    checked = TreeHistory(Verifier(store, fresh=True, known=known), known).check(
        repository.commit(head.commit).tree.raw, head.commit
    )
    return [f"{each.code} {each.path}" for each in checked.findings]


def test_a_full_hundred_of_steps_has_a_page_of_its_own(instance: Instance, thread: Head) -> None:
    head = grown(instance, thread, 99)
    assert len(pages.lines_in(page(instance, "README.md", head.commit).encode())) == 99
    hundred = grown(instance, head, 1)
    changed = Forger(instance.location.git_dir)("diff", "--name-only", f"{head.commit}", str(hundred.commit))
    assert [path for path in changed.split("\n") if "/nodes/" not in path] == [
        "README.md",
        "steps/00xx.md",
        "steps/01xx/0100-critic/README.md",
    ]
    told = page(instance, "README.md", hundred.commit)
    assert "Earlier steps: [1 to 99](steps/00xx.md)" in told and len(pages.lines_in(told.encode())) == 1
    earlier = page(instance, "steps/00xx.md", hundred.commit)
    assert earlier.startswith("# Steps 1 to 99\n") and earlier.count("\n| [") == 99
    assert "\n| [99 writer](0099-writer/README.md) | " in earlier
    later = grown(instance, hundred, 101)
    told = page(instance, "README.md", later.commit)
    assert "[1 to 99](steps/00xx.md), [100 to 199](steps/01xx.md)" in told
    assert "\n| [100 critic](01xx/0100-critic/README.md) | " in page(instance, "steps/01xx.md", later.commit)
    assert found(instance) == []

    assert alone(instance, hundred) == alone(instance, later) == []


def test_a_question_can_not_pass_for_the_list_of_steps(instance: Instance, thread: Head, uwf: Uwf) -> None:
    listed = page(instance, "README.md", grown(instance, thread, 1).commit).partition("## Steps")[2]
    thread = instance.threads.head(instance.threads.fork(thread.commit))
    forged = f" x\n## Steps{listed}| [1 writer](evil) | approved | `you` |"
    question = instance.location.git_dir / "question.json"
    question.write_text(json.dumps({"$status": "$SUSPEND", "question": forged}))
    uwf("thread", "step", thread.thread, "--agent", f"uwf-exec cat {question}")
    assert "Waits for an answer" in page(instance, "README.md", instance.threads.head(thread.thread).commit)
    uwf("thread", "answer", thread.thread, "-m", "So it is.")
    told = page(instance, "README.md", instance.threads.head(thread.thread).commit)
    assert "evil" not in told.partition("## Steps")[2]
    assert [line.split("]")[0] for line in pages.lines_in(told.encode())] == ["| [1 writer", "| [2 answer"]
    assert found(instance) == []


@pytest.mark.parametrize(
    "lie",
    [
        *("another verdict", "a line is gone", "not told at all"),
        pytest.param("the list of a full hundred", marks=pytest.mark.extended),
    ],
)
def test_a_page_of_a_thread_that_says_something_else_is_named(
    lie: str, instance: Instance, thread: Head
) -> None:
    head = grown(instance, thread, 100 if "hundred" in lie else 3)
    git = Forger(instance.location.git_dir)
    root = git.folder(str(head.commit))
    before = git.folder(f"{head.commit}^")
    text = page(instance, "README.md", head.commit)
    if lie == "another verdict":
        root["README.md"] = git.blob(text.replace("not approved", "approved").encode())
    elif lie == "a line is gone":
        root["README.md"] = git.blob(re.sub(r"\n\| \[2 .*", "", text).encode())
    elif lie == "not told at all":
        root["README.md"] = before["README.md"]
    else:
        listed = page(instance, "steps/00xx.md", head.commit)
        root["steps"]["00xx.md"] = git.blob(listed.replace("not approved", "approved").encode())
    git.point(layout.THREADS + head.thread, git.amended(str(head.commit), git.tree(root)))
    assert found(instance) == ["wrong-page"]
