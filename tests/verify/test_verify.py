"""What uwf writes verifies, however it came about; and only what nobody vouches for is entered again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import EXAMPLES, REPOSITORY, Uwf
from forged import WORKFLOW, Forger, stepped
from workflows import start_thread

from uwf_git.format.node import Node, to_blob
from uwf_git.format.types import TEXT
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.store.node_rows import NodeRow
from uwf_git.sync.removal import remove
from uwf_git.verify.findings import CODES
from uwf_git.verify.refs import Verifier
from uwf_git.verify.whole import VerifyResult, local_refs, verify_refs

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
FRESH = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.extended) if name == "fan-out" else name for name in NAMES]
)
def test_every_example_rehearsed_to_its_end_is_sound(name: str, uwf: Uwf) -> None:
    thread = uwf("thread", "start", EXAMPLES / f"{name}.yaml", "-p", "# A *task*\n\nwith `more`").json[
        "thread"
    ]
    while uwf("thread", "run", thread, check=None).code == 5:
        waiting = uwf("thread", "show", thread).json
        text = waiting["options"][0] if waiting["options"] else "Yes: go on."
        for email in waiting.get("approvals", {}).get("of", [None]):
            env = {"GIT_COMMITTER_EMAIL": email} if email else {}
            uwf("thread", "answer", thread, "-m", text, env=env, check=None)
    found = uwf("verify").json
    assert found["findings"] == []
    threads = [row["thread"] for row in uwf("thread", "list", "--all").json]  # and its branches
    assert found["verified"]["steps"] == sum(len(uwf("thread", "steps", each).json) for each in threads)


SECRET = "sk-live-0123456789abcdef"


def test_attempts_questions_answers_kills_forks_and_nodes_put_by_hand_are_sound(
    uwf: Uwf, root: Path, script: Callable[[str, str], Path], hermetic: Path
) -> None:
    (hermetic / "pair.yaml").write_text(WORKFLOW)
    uwf("workflow", "put", hermetic / "pair.yaml")
    (root / ".env").write_text(f"KEY={SECRET}\n")
    (root / ".env").chmod(0o600)
    thread = uwf("thread", "start", "pair", "-p", f"tides, with {SECRET}").json["thread"]
    broken = script("broken", "import sys; print('said'); sys.exit('it broke\\n\\x1b[31mtwice')")
    for _ in range(3):
        uwf("thread", "step", thread, "--agent", broken, check=6)
    garbled = "uwf-exec -- sh -c 'echo ---; echo title: 3; echo ---'"
    uwf("thread", "step", thread, "--agent", garbled, check=None)
    asking = script(
        "asking",
        "from uwf_git.kit import create_agent\n"
        "create_agent('asking', lambda ctx: '---\\nstatus: needs_input\\nquestion: Which?\\n---\\nHm.').main()\n",
    )
    uwf("thread", "step", thread, "--agent", asking)
    uwf("thread", "answer", thread, "-m", f"This one, says {SECRET}")
    uwf("thread", "step", thread, "--agent", broken, check=6)
    uwf("thread", "step", thread, "--agent", "uwf-exec false")
    fork = uwf("thread", "fork", thread, "--at", "2").json["thread"]
    uwf("thread", "answer", fork, "-m", "Another.")
    uwf("thread", "step", fork, "--agent", "uwf-exec false")
    uwf("thread", "kill", fork, "--reason", "no more: it is over")
    uwf("cas", "put", "Text", json.dumps("hello"))
    uwf("thread", "run", thread, "--agent", "uwf-rehearse")
    found = uwf("verify").json
    assert found["findings"] == []
    assert found["verified"]["threads"] == 2
    assert [each["findings"] for each in (uwf("verify", thread[:20]).json, uwf("verify", fork).json)] == [
        [],
        [],
    ]
    git = Forger(root / "store.git")
    git("pack-refs", "--all")
    git("repack", "-adq")
    git("prune-packed", "-q")
    assert uwf("verify").json == found


def started(instance: Instance, prompt: str = "tides") -> Head:
    """A new thread of WORKFLOW."""
    return instance.threads.head(start_thread(instance, WORKFLOW, prompt))


def look(instance: Instance) -> VerifyResult:
    repository = Repository(instance.location.git_dir)
    return verify_refs(repository, local_refs(repository))


def test_a_step_of_a_sub_workflow_is_verified_with_that_threads_history(instance: Instance) -> None:
    child = stepped(
        instance, stepped(instance, started(instance), "writer", {"title": "T"}), "critic", {"approved": True}
    )
    parent = stepped(instance, started(instance, "dunes"), "writer", {"title": "T"}, detail=child.node)
    remove(instance, child.thread)
    found = look(instance)
    assert found.findings == () and found.steps == 3

    git = Forger(instance.location.git_dir)
    first, second = git("rev-parse", f"{parent.commit}^1"), git("rev-parse", f"{parent.commit}^2")
    for parents in ([first], [first, git("rev-parse", f"{second}^1")]):
        git.point(layout.THREADS + parent.thread, git.amended(str(parent.commit), parents=parents))
        assert [each.code for each in look(instance).findings] == ["wrong-parent"]


def test_a_sub_workflow_that_goes_on_has_done_no_step_yet(instance: Instance) -> None:
    child = stepped(instance, started(instance), "writer", {"title": "T"})
    parent = stepped(instance, started(instance, "dunes"), "writer", {"title": "T"}, detail=child.node)
    [found] = look(instance).findings
    assert (found.code, found.step) == ("wrong-parent", parent.node)
    assert child.node in found.message


def test_a_bad_step_of_a_sub_workflow_is_found_in_the_thread_that_called_it(instance: Instance) -> None:
    child = stepped(instance, started(instance), "writer", {"title": "T"})
    child = stepped(instance, child, "critic", {"approved": True})
    git = Forger(instance.location.git_dir)
    folder = git.folder(str(child.commit))
    folder["steps"]["0002-critic"]["README.md"] = git.blob(b"something else")
    bad = git.amended(str(child.commit), git.tree(folder))
    parent = stepped(instance, started(instance, "dunes"), "writer", {"title": "T"}, detail=child.node)
    first = git("rev-parse", f"{parent.commit}^1")
    git.point(layout.THREADS + parent.thread, git.amended(str(parent.commit), parents=[first, bad]))
    git("update-ref", "-d", layout.THREADS + child.thread)
    [found] = look(instance).findings
    assert (found.code, found.thread, found.step) == ("wrong-page", parent.thread, child.node)


def test_a_node_that_an_earlier_step_has_may_stand_in_both_folders_or_in_the_first(
    instance: Instance,
) -> None:
    one = stepped(instance, started(instance), "writer", {"title": "T"})
    two = stepped(instance, stepped(instance, one, "critic", {"approved": False}), "writer", {"title": "T"})
    assert look(instance).findings == ()
    git = Forger(instance.location.git_dir)
    folder = git.folder(str(two.commit))
    output = instance.threads.history(two).steps[-1].hash
    output = instance.store.get(output).payload["output"]
    del folder["steps"]["0003-writer"]["nodes"][f"{output}.json"]
    git.point(layout.THREADS + two.thread, git.amended(str(two.commit), git.tree(folder)))
    assert look(instance).findings == ()


def test_only_what_nobody_vouches_for_is_entered(instance: Instance) -> None:
    head = stepped(instance, started(instance), "writer", {"title": "T"})
    git = Forger(instance.location.git_dir)
    entered: list[str] = []
    known = instance.store.index
    critic = stepped(instance, head, "critic", {"approved": False})
    store = Store(instance.store.repository, Overlay(known))
    verifier = Verifier(
        store,
        lambda oid: oid != critic.commit and known.commit(oid.raw) is not None,
        on_commit=lambda: entered.append("one"),
    )
    assert verifier.ref(layout.THREADS + critic.thread, critic.commit) == []
    assert (entered, verifier.steps) == (["one"], 1)
    assert store.index.commit(critic.commit.raw) == known.commit(critic.commit.raw)

    folder = git.folder(str(critic.commit))
    del folder["steps"]["0001-writer"]
    bad = Oid(hex=git.amended(str(critic.commit), git.tree(folder)))
    again = Verifier(store, lambda oid: known.commit(oid.raw) is not None)
    found = again.ref(layout.THREADS + critic.thread, bad)
    assert [(each.code, each.step) for each in found] == [("changed-file", critic.node)]
    assert store.index.commit(bad.raw) is None


def test_what_was_verified_is_in_the_index_as_if_it_had_been_taken_in(instance: Instance) -> None:
    head = stepped(
        instance, stepped(instance, started(instance), "writer", {"title": "T"}), "critic", {"approved": True}
    )
    instance.threads.archive(head, "completed")
    fresh = Store(instance.store.repository, Overlay())
    verifier = Verifier(fresh)
    for name, oid in instance.store.repository.refs().items():
        assert verifier.ref(name, oid) == []
    for sql in (
        "SELECT * FROM commits ORDER BY oid",
        "SELECT * FROM nodes ORDER BY hash",
        "SELECT * FROM archives",
    ):
        taken = Store(instance.store.repository, Overlay())
        taken.index_commit(head.commit)
        for oid in instance.store.repository.refs(layout.ARCHIVE).values():
            taken.index_tag(oid)
        assert fresh.index._run(sql) == taken.index._run(sql)


def test_another_content_under_a_hash_that_is_known_is_a_collision(instance: Instance) -> None:
    head = stepped(instance, started(instance), "writer", {"title": "T"})
    output = instance.store.get(instance.threads.history(head).steps[0].hash).payload["output"]
    other = instance.store.repository.write_blob(to_blob(Node(TEXT, "another", 1)))
    base = Overlay()
    base.set_nodes([NodeRow(output, TEXT, other.raw, "")])  # as a collision would leave it
    store = Store(instance.store.repository, Overlay(base))
    found = Verifier(store).ref(layout.THREADS + head.thread, head.commit)
    assert "collision" in {each.code for each in found}
    assert str(other) in next(each.message for each in found if each.code == "collision")


def test_what_is_fetched_is_verified_by_its_names_there(uwf: Uwf, instance: Instance) -> None:
    head = stepped(instance, started(instance), "writer", {"title": "T"})
    git = Forger(instance.location.git_dir)
    uwf("remote", "add", "origin", "https://git.example.invalid/threads.git")
    folder = git.folder(str(head.commit))
    folder["evil"] = git.blob(b"")
    bad = git.amended(str(head.commit), git.tree(folder))
    git.point(f"refs/uwf/remotes/origin/threads/{FRESH}", bad)
    git.point(f"refs/uwf/remotes/origin/threads/{head.thread}", str(head.commit))
    assert uwf("verify").json["findings"] == []
    found = uwf("verify", "--remote", "origin", "--no-fetch", check=7).json
    assert found["findings"] == [
        {
            "code": "extra-file",
            "thread": FRESH,
            "step": head.node,
            "object": git("rev-parse", f"{bad}^{{tree}}"),
            "message": "evil does not belong to the record",
            "ref": f"refs/uwf/threads/{FRESH}",
            "path": "evil",
        }
    ]
    assert found["verified"]["threads"] == 2
    assert uwf("verify", "--remote", "nowhere", check=3).error["code"] == "not_found"
    assert uwf("verify", "--remote", "origin", "--all", check=2).error["code"] == "usage"
    assert uwf("verify", FRESH, check=3).error["code"] == "not_found"


def test_every_code_that_is_reported_is_one_of_the_published() -> None:
    rooms = (REPOSITORY / "uwf_git" / name for name in ("verify", "trust", "approvals"))
    files = [path for room in rooms for path in room.glob("*.py")]
    files += [REPOSITORY / "uwf_git/api" / name for name in ("check.py", "branches.py", "attribution.py")]
    files += (REPOSITORY / "uwf_git/ext").glob("*/step_parts.py")
    sources = "".join(path.read_text() for path in files if path.name != "findings.py")
    used = set(re.findall(r'(?:Bad|report|note|Finding)\(\s*"([a-z-]+)"', sources))
    assert used <= set(CODES)
    assert [code for code in CODES if f'"{code}"' not in sources and code not in used] == []


def test_every_code_of_a_finding_is_documented() -> None:
    section = (
        (REPOSITORY / "docs/reference/commands/store.md")
        .read_text(encoding="utf-8")
        .split("## `uwf verify")[1]
        .split("\n## ")[0]
    )
    assert re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", section, re.MULTILINE) == list(CODES.items())
