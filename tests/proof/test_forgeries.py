"""Forgeries by those who may push or hold the server: fields of commits, tags, nodes and pages, and refs.

One who has seen the true history is told of all of them, and none of their refs moves. One who comes fresh is told of
all but those in SEEN_ONLY, by the policy that came along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Uwf
from proof_world import GATE, ProofWorld, named, replaced, signed_by, unsigned, works
from signers import trust_file

from uwf_git.format.ids import Hash
from uwf_git.format.node import Node, hash_of, to_blob

TOLD = (7, 12, 14)
"""Damaged, rewritten, or not what the policy requires."""

Forgery = Callable[[ProofWorld], None]


# Commits of steps

BOSS = "The Boss <boss@example.invalid>"


def committer(world: ProofWorld) -> None:
    world.recommit(replaced(r"^committer .*> ", f"committer {BOSS} "))


def committer_unsigned(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^committer .*> ", f"committer {BOSS} ")(unsigned(text)))


def date(world: ProofWorld) -> None:
    world.recommit(replaced(r"^(committer .*> )\d+", r"\g<1>1700000000"))


def date_unsigned(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^(committer .*> )\d+", r"\g<1>1700000000")(unsigned(text)))


def time_zone(world: ProofWorld) -> None:
    world.recommit(replaced(r"^(committer .*) \+0000$", r"\1 +0100"))


def author(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^author .*> ", f"author {BOSS} ")(unsigned(text)))


def author_date(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^(author .*> )\d+", r"\g<1>1700000000")(unsigned(text)))


def signature_removed(world: ProofWorld) -> None:
    world.recommit(unsigned)


def signatures_of_all_steps_removed(world: ProofWorld) -> None:
    head = world.again(world.ref(f"{world.archive}^{{commit}}"), unsigned, 5)
    world.retarget(head)


def signature_of_a_stranger(world: ProofWorld) -> None:
    world.recommit(signed_by(world, world.machine("mallory").signer))


def signature_of_another_commit(world: ProofWorld) -> None:
    other = world.raw(world.ref(world.active))
    signature = other[other.index("gpgsig ") : other.index("\n\n")]

    def change(text: str) -> str:
        head, _, body = unsigned(text).partition("\n\n")
        return f"{head}\n{signature}\n\n{body}"

    world.recommit(change, steps=2)


def subject(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^(0\d+ \w+).*$", r"\1: approved by all")(unsigned(text)))


def trailer_of_the_agent(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^Uwf-Agent: .*$", "Uwf-Agent: uwf-claude-code")(unsigned(text)))


def trailer_of_the_role(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^Uwf-Role: .*$", "Uwf-Role: boss")(unsigned(text)))


def trailer_of_the_step(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"^Uwf-Step: .*$", "Uwf-Step: 2VPBA58TEM5G7")(unsigned(text)))


def body(world: ProofWorld) -> None:
    world.recommit(
        lambda text: replaced(r"\n\nUwf-Step", "\n\nApproved-by: The Boss\n\nUwf-Step")(unsigned(text))
    )


def header(world: ProofWorld) -> None:
    world.recommit(lambda text: replaced(r"\n\n", "\nencoding latin-1\n\n")(unsigned(text)))


def a_step_dropped(world: ProofWorld) -> None:
    head = world.ref(f"{world.archive}^{{commit}}")
    grandparent = world.ref(f"{head}~2")
    world.retarget(
        world.written(replaced(r"^parent .*$", f"parent {grandparent}")(unsigned(world.raw(head))))
    )


def a_second_parent(world: ProofWorld) -> None:
    other = world.ref(world.active)
    world.recommit(lambda text: replaced(r"^(parent .*)$", rf"\1\nparent {other}")(unsigned(text)))


def all_steps_on_another_version(world: ProofWorld) -> None:
    head = world.ref(f"{world.archive}^{{commit}}")
    version = world.written(unsigned(world.raw(world.ref("refs/uwf/workflows/gate"))))
    start = world.git("rev-list", "--first-parent", head).split()[4]
    text = replaced(r"^parent .*$", f"parent {version}")(unsigned(world.raw(start)))
    parent = world.written(text)
    for oid in reversed(world.git("rev-list", "--first-parent", "-4", head).split()):
        parent = world.written(replaced(r"^parent .*$", f"parent {parent}")(unsigned(world.raw(oid))))
    world.retarget(parent)


# Trees and pages


def _last_step(world: ProofWorld) -> str:
    paths = world.files(f"{world.archive}^{{commit}}")
    return max(path.rpartition("/")[0] for path in paths if re.match(r"steps/\d+-[a-z]+/README", path))


def page_of_a_step(world: ProofWorld) -> None:
    world.retree(f"{_last_step(world)}/README.md", b"# 4 reviewer: approved by the boss\n")


def front_page(world: ProofWorld) -> None:
    world.retree("README.md", b"# All is well\n")


def extra_file(world: ProofWorld) -> None:
    world.retree("steps/approval.md", b"Approved.\n")


def program_among_the_files(world: ProofWorld) -> None:
    path = f"{_last_step(world)}/README.md"
    world.retree(path, world.read(f"{world.archive}^{{commit}}", path).encode(), "100755")


def definition(world: ProofWorld) -> None:
    world.retree("workflow.yaml", b"name: gate\n")


# Nodes


def _node_of(world: ProofWorld, of_type: str) -> tuple[str, Node]:
    from uwf_git.format.node import from_blob

    commit = f"{world.archive}^{{commit}}"
    for path in world.files(commit):
        if path.startswith(_last_step(world)) and "/nodes/" in path:
            node = from_blob(world.read(commit, path).encode(), Hash(path[-18:-5]))
            if of_type in node.payload:
                return path, node
    raise AssertionError(of_type)


def node_changed_under_its_hash(world: ProofWorld) -> None:
    path, node = _node_of(world, "status")
    payload = {**node.payload, "reason": "the boss said so"}
    world.retree(path, to_blob(node._replace(payload=payload)))


def node_removed(world: ProofWorld) -> None:
    world.retree(_node_of(world, "status")[0], None)


def node_of_another_time(world: ProofWorld) -> None:
    path, node = _node_of(world, "status")
    world.retree(path, to_blob(node._replace(timestamp=1_700_000_000_000)))


def node_added(world: ProofWorld) -> None:
    path, node = _node_of(world, "status")
    other = node._replace(payload={**node.payload, "reason": "another"})
    hash_ = hash_of(other.type, other.payload)
    world.retree(f"{path.rpartition('/')[0]}/{hash_}.json", to_blob(other))


def another_answer_in_the_name_of_bob(world: ProofWorld) -> None:
    """All of it as the program would have made it, but for the key."""
    machine = world.without_policy()
    world.git("update-ref", "-d", world.archive, at=machine.store)
    before = world.ref(f"{world.archive}^{{commit}}~1")
    world.git("update-ref", f"refs/uwf/threads/{world.thread}", before, at=machine.store)
    machine("doctor", "--quick", "--accept-store", check=None)
    machine(*("thread", "answer", world.thread, "-f", "status=done", "-f", "reason=lgtm"), env=named("bob"))
    world.git("push", "-q", "--force", str(world.shared), f"+{world.archive}", at=machine.store)


def a_step_more_in_the_name_of_ann(world: ProofWorld) -> None:
    machine = world.without_policy()
    works(machine, world.other, "slipped in", **named("ann"))
    world.git("push", "-q", str(world.shared), world.active, at=machine.store)


def an_end_in_the_name_of_ann(world: ProofWorld) -> None:
    machine = world.without_policy()
    machine("thread", "kill", world.other, env=named("ann"))
    world.git("push", "-q", str(world.shared), f"refs/uwf/archive/{world.other}", at=machine.store)


# Archive tags


def tagger(world: ProofWorld) -> None:
    world.retag(replaced(r"^tagger .*> ", f"tagger {BOSS} "))


def date_of_the_end(world: ProofWorld) -> None:
    world.retag(lambda text: unsigned(replaced(r"^(tagger .*> )\d+", r"\g<1>1700000000")(text)))


def another_end(world: ProofWorld) -> None:
    world.retag(lambda text: unsigned(replaced(r"^completed", "killed")(text)))


def reason_of_the_end(world: ProofWorld) -> None:
    world.retag(lambda text: unsigned(replaced(r"^completed.*$", "completed: approved by the boss")(text)))


def signature_of_the_end_removed(world: ProofWorld) -> None:
    world.retag(unsigned)


def end_signed_by_a_stranger(world: ProofWorld) -> None:
    world.retag(signed_by(world, world.machine("mallory").signer))


def an_earlier_end(world: ProofWorld) -> None:
    earlier = world.ref(f"{world.archive}^{{commit}}~2")
    world.retag(lambda text: unsigned(replaced(r"^object .*$", f"object {earlier}")(text)))


def name_in_the_tag(world: ProofWorld) -> None:
    world.retag(lambda text: unsigned(replaced(r"^tag .*$", f"tag uwf/{world.other}")(text)))


# Refs


def the_end_of_another_thread(world: ProofWorld) -> None:
    world.put(f"refs/uwf/archive/{world.other}", world.ref(world.archive))


def another_thread_under_the_id(world: ProofWorld) -> None:
    world.put(world.archive, None)
    world.put(f"refs/uwf/threads/{world.thread}", world.ref(world.active))


COPY = "01M8HVZZZZZZZZZZZZZZZZZZZZ"


def a_copy_under_another_id(world: ProofWorld) -> None:
    world.put(f"refs/uwf/threads/{COPY}", world.ref(world.active))


def tag_in_the_name_of_ann(world: ProofWorld, thread: str, message: str) -> str:
    head = f"object {world.ref(world.active)}\ntype commit\ntag uwf/{thread}\n"
    return world.written(f"{head}tagger ann <ann@example.invalid> 1790000000 +0000\n\n{message}\n", "tag")


def a_copy_that_is_called_a_fork(world: ProofWorld) -> None:
    a_copy_under_another_id(world)
    message = f"fork of {world.other}\nforked by hand"
    world.put(f"refs/uwf/forks/{COPY}", tag_in_the_name_of_ann(world, COPY, message))


def a_pause_in_the_name_of_ann(world: ProofWorld) -> None:
    world.put(f"refs/uwf/paused/{world.other}", tag_in_the_name_of_ann(world, world.other, "paused: wait"))


def base_of_the_comparison_moved(world: ProofWorld) -> None:
    world.put(f"refs/heads/uwf/base/{world.thread}", world.ref(f"{world.archive}^{{commit}}"))


def policy_deleted(world: ProofWorld) -> None:
    world.put("refs/uwf/trust/policy", None)


def workflow_committed_again(world: ProofWorld) -> None:
    ref = "refs/uwf/workflows/gate"
    world.put(
        ref,
        world.written(
            replaced(r"^committer .*> ", f"committer {BOSS} ")(unsigned(world.raw(world.ref(ref))))
        ),
    )


def workflow_version_by_a_stranger(world: ProofWorld) -> None:
    machine = world.without_policy(signs=True)
    machine.registers(GATE.replace("One works", "Nobody works"))
    world.git("push", "-q", str(world.shared), "refs/uwf/workflows/gate", at=machine.store)


def end_replaced_in_a_fold(world: ProofWorld) -> None:
    machine = world.without_policy()
    text = unsigned(replaced(r"^tagger .*> ", f"tagger {BOSS} ")(world.raw(world.ref(world.archive))))
    tag = world.git("hash-object", "-t", "tag", "-w", "--stdin", at=machine.store, data=text)
    world.git("update-ref", world.archive, tag, at=machine.store)
    machine("doctor", "--accept-store", check=None)
    machine("gc", "--fold-before", "2100-01-01")
    fold = world.git("for-each-ref", "--format=%(refname)", "refs/uwf/folded", at=machine.store)
    world.git("push", "-q", "--force", str(world.shared), fold, at=machine.store)
    world.put(world.archive, None)


# The policy

POLICY = "refs/uwf/trust/policy"


def policy_by_a_stranger(world: ProofWorld) -> None:
    machine = world.mallory()
    machine.signer.signs()
    text = trust_file({"ann": world.ann.signer, "bob": world.bob.signer, "mallory": machine.signer})
    tip = world.ref(POLICY)
    tree = world.tree_with(f"{tip}^{{tree}}", ["trust.yaml"], text.encode(), "100644")
    head = replaced(r"^tree .*$", f"tree {tree}\nparent {tip}")(unsigned(world.raw(tip)))
    world.put(POLICY, world.written(signed_by(world, machine.signer)(head)))


def policy_unsigned(world: ProofWorld) -> None:
    world.put(POLICY, world.written(unsigned(world.raw(world.ref(POLICY)))))


def another_first_policy(world: ProofWorld) -> None:
    signer = world.machine("mallory").signer
    text = trust_file({"mallory": signer}, maintainers="mallory")
    tip = world.ref(POLICY)
    tree = world.tree_with(f"{tip}^{{tree}}", ["trust.yaml"], text.encode(), "100644")
    world.put(
        POLICY,
        world.written(
            signed_by(world, signer)(re.sub(r"^tree .*$", f"tree {tree}", unsigned(world.raw(tip)), count=1))
        ),
    )


# What reviewers read


def published(world: ProofWorld) -> str:
    return f"refs/heads/uwf/threads/{world.thread}"


def page_edited_on_the_branch(world: ProofWorld) -> None:
    tip = world.ref(published(world))
    tree = world.tree_with(f"{tip}^{{tree}}", ["README.md"], b"# Approved\n", "100644")
    bob = "bob <bob@example.invalid> 1790000000 +0000"
    text = f"tree {tree}\nparent {tip}\nauthor {bob}\ncommitter {bob}\n\nfix a typo\n"
    world.put(published(world), world.written(text))


def branch_of_other_commits(world: ProofWorld) -> None:
    world.put(published(world), world.again(world.ref(published(world)), unsigned, 2))


def branch_of_another_thread(world: ProofWorld) -> None:
    world.put(published(world), world.ref(world.active))


FRESH_AND_SEEN: tuple[Forgery, ...] = (
    *(committer, committer_unsigned, date, date_unsigned, time_zone, author, author_date),
    *(
        signature_removed,
        signatures_of_all_steps_removed,
        signature_of_a_stranger,
        signature_of_another_commit,
    ),
    *(subject, trailer_of_the_agent, trailer_of_the_role, trailer_of_the_step, body, header),
    *(a_step_dropped, a_second_parent, all_steps_on_another_version),
    *(page_of_a_step, front_page, extra_file, program_among_the_files, definition),
    *(node_changed_under_its_hash, node_removed, node_of_another_time, node_added),
    *(another_answer_in_the_name_of_bob, a_step_more_in_the_name_of_ann, an_end_in_the_name_of_ann),
    *(tagger, date_of_the_end, another_end, reason_of_the_end, signature_of_the_end_removed),
    *(end_signed_by_a_stranger, an_earlier_end, name_in_the_tag),
    *(
        the_end_of_another_thread,
        another_thread_under_the_id,
        workflow_committed_again,
        workflow_version_by_a_stranger,
        end_replaced_in_a_fold,
    ),
    *(a_copy_under_another_id, a_copy_that_is_called_a_fork, a_pause_in_the_name_of_ann),
    *(base_of_the_comparison_moved, policy_by_a_stranger, policy_unsigned),
    *(page_edited_on_the_branch, branch_of_other_commits, branch_of_another_thread),
)
# Nothing in what one who comes fresh sees of these is wrong in itself.
SEEN_ONLY: tuple[Forgery, ...] = (another_first_policy, policy_deleted)


@pytest.fixture
def world(uwf: Uwf, tmp_path: Path, lasting: Path) -> ProofWorld:
    return ProofWorld(uwf, tmp_path, lasting / "proof")


SECOND: frozenset[Forgery] = frozenset(
    (
        *(date, date_unsigned, time_zone, author, author_date),  # committer, committer_unsigned
        *(
            signatures_of_all_steps_removed,
            end_signed_by_a_stranger,
        ),  # signature_removed, signature_of_a_stranger
        *(trailer_of_the_role, trailer_of_the_step, front_page),  # trailer_of_the_agent, page_of_a_step
        *(date_of_the_end, reason_of_the_end, name_in_the_tag),  # tagger, another_end
    )
)
"""Second instances, extended: another field of the same object as those in the comments."""


def each_of(forgeries: tuple[Forgery, ...]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(
            forge,
            id=forge.__name__.replace("_", "-"),
            marks=[pytest.mark.extended] if forge in SECOND else [],
        )
        for forge in forgeries
    ]
    return pytest.mark.parametrize("forge", cases)


def forges(forge: Forgery, world: ProofWorld) -> None:
    """Forge, and see that a shared ref is another or gone."""
    before = world.git("for-each-ref")
    forge(world)
    assert world.git("for-each-ref") != before


def test_there_are_fifty_of_them() -> None:
    assert len({*FRESH_AND_SEEN, *SEEN_ONLY}) >= 50


def is_told_to_one_who_has_seen_it(world: ProofWorld, before: dict[str, str]) -> None:
    """Told of, and nothing taken over."""
    pulled = world.bob("pull", check=None)
    verified = world.bob("verify", "--remote", "origin", check=None)
    assert verified.code in TOLD, (pulled.out, pulled.err, verified.out)
    assert {name: oid for name, oid in world.bob.refs().items() if name in before} == before


def is_told_to_one_who_comes_fresh(world: ProofWorld) -> None:
    fresh = world.machine("carol")
    cloned = fresh("clone", world.shared, check=None)
    verified = fresh("verify", "--remote", "origin", check=None)
    assert cloned.code in TOLD or verified.code in TOLD, (cloned.out, cloned.err, verified.out, verified.err)
    codes = [each["code"] for each in json.loads(verified.out)["findings"]] if verified.out else []
    assert codes or cloned.error, cloned.out


@pytest.mark.sample(12)
@each_of(FRESH_AND_SEEN)
def test_one_who_has_seen_the_true_history_and_one_who_comes_fresh_are_told(
    world: ProofWorld, forge: Forgery
) -> None:
    before = world.bob.refs()
    forges(forge, world)
    is_told_to_one_who_has_seen_it(world, before)
    is_told_to_one_who_comes_fresh(world)


@each_of(SEEN_ONLY)
def test_one_who_has_seen_the_true_history_is_told_and_keeps_it(world: ProofWorld, forge: Forgery) -> None:
    before = world.bob.refs()
    forges(forge, world)
    is_told_to_one_who_has_seen_it(world, before)


def test_what_nobody_forged_is_clean_for_both(world: ProofWorld) -> None:
    world.bob("pull")
    world.bob("verify")
    world.bob("verify", "--remote", "origin")
    fresh = world.machine("carol")
    fresh("clone", world.shared)
    fresh("verify")
    fresh("verify", "--remote", "origin")


def test_a_branch_behind_its_thread_is_a_warning_since_nobody_has_to_publish_again(world: ProofWorld) -> None:
    world.put(published(world), world.ref(f"{published(world)}~1"))
    verified = world.bob("verify", "--remote", "origin")
    assert [each["code"] for each in verified.json["warnings"]] == ["behind"]
    world.bob("verify", "--remote", "origin", "--strict", check=1)
