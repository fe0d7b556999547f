"""Forks, branches and joins that somebody else made: each forgery is named, by its thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from forged_fan_outs import Change, Forge

from uwf_git.engine.fan_out import join as engines_join
from uwf_git.format.fan_out import join_payload, parse_join
from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.format.types import FORK, FORK_OUTPUT, JOIN, JOIN_OUTPUT, REMARK, USER
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.instance import Instance

Forgery = Callable[[Forge], ThreadId]


pytestmark = pytest.mark.forges


@pytest.fixture
def forge(instance: Instance) -> Forge:
    return Forge(instance)


def told(forge: Forge, forgeries: dict[str, tuple[str, Forgery]]) -> None:
    """Each forgery is told of its thread by its code, and threads as the engine makes them by none."""
    made = {name: forge_it(forge) for name, (_, forge_it) in forgeries.items()}
    honest, branches = forge.ended()
    forge.join(honest)
    codes: dict[str | None, set[str]] = {}
    for each in forge.findings():
        codes.setdefault(each.thread, set()).add(each.code)
    assert {name: codes.get(thread) for name, thread in made.items()} == {
        name: {code} for name, (code, _) in forgeries.items()
    }
    assert not {honest, *branches} & codes.keys()


def sets(**values: Any) -> Change:
    return lambda payload: payload.update(values)


# Forks


def fork(change: Change = lambda _: None, policy: str = "", **given: Any) -> Forgery:
    def forge_it(forge: Forge) -> ThreadId:
        thread = forge.start(policy)
        forge.fork(thread, change, **given)
        return thread

    return forge_it


def a_fork_that_is_not_due(forge: Forge) -> ThreadId:
    thread, branches = forge.forked()
    payload = forge.instance.store.get(forge.instance.store.get(forge.head(thread).node).payload["output"])
    forge.append(branches[0], FORK, FORK_OUTPUT, payload.payload)
    return branches[0]


def a_role_instead_of_the_fork(forge: Forge) -> ThreadId:
    thread = forge.start()
    schema = forge.instance.threads.history(forge.head(thread)).workflow.roles["fixer"].schema
    forge.append(thread, "fixer", schema, {"text": "fixed"}, agent="by-hand")
    return thread


def its_branches(**values: Any) -> Change:
    return lambda payload: payload.update(branches=[{**payload["branches"][0], **values}])


FORKS: dict[str, tuple[str, Forgery]] = {
    "an item more": ("wrong-fork", fork(sets(items=["a", "b", "c"], summary="3 branches", need="all"))),
    "another item": ("wrong-fork", fork(sets(items=["a", "x"]))),
    "another edge": ("wrong-fork", fork(sets(edge=1))),
    "another source": ("wrong-fork", fork(sets(source="reviewer"))),
    "another name of the item": ("wrong-fork", fork(sets(name="thing"))),
    "fewer needed": ("wrong-fork", fork(sets(need=1))),
    "failures dropped": ("wrong-fork", fork(sets(onFailure="drop"))),
    "conflicts refused": ("wrong-fork", fork(sets(onConflict="fail"))),
    "other ends of its branches": ("wrong-fork", fork(sets(until=["other"]))),
    "more at once": ("wrong-fork", fork(sets(atOnce=64), "atOnce: 2")),
    "another role": ("wrong-fork", fork(its_branches(role="other"))),
    "another workflow": ("wrong-fork", fork(its_branches(workflow="0" * 13))),
    "a share of time": ("wrong-fork", fork(sets(budget={"maxWallTime": 5}))),
    "other words": ("wrong-fork", fork(sets(summary="Two branches"))),
    "an agent's": ("wrong-fork", fork(agent="by-hand")),
    "an answer": ("wrong-detail", fork(answer="Forked.")),
    "where the fixer was called": ("wrong-role", a_fork_that_is_not_due),
    "a role's step instead": ("wrong-role", a_role_instead_of_the_fork),
}


def test_a_fork_that_does_not_follow_from_the_history_is_told(forge: Forge) -> None:
    told(forge, FORKS)


# Branches


def branch(change: Change = lambda _: None, place: int = 0) -> Forgery:
    def forge_it(forge: Forge) -> ThreadId:
        thread = forge.start()
        forge.fork(thread)
        return forge.begin(thread, change, place=place)

    return forge_it


def in_branch(**values: Any) -> Change:
    return lambda payload: payload["branch"].update(values)


def on_another_fork(forge: Forge) -> ThreadId:
    thread, other = forge.start(), forge.start("need: first")
    forge.fork(thread)
    forge.fork(other)
    return forge.begin(thread, on=forge.head(other).commit)


def on_no_fork(forge: Forge) -> ThreadId:
    thread = forge.start()
    forge.fork(thread)
    return forge.begin(thread, on=Oid(raw=forge.head(thread).row.parent or b""))


def under_another_id(forge: Forge) -> ThreadId:
    _, branches = forge.forked()
    return forge.point(forge.head(branches[0]).commit)


def a_copy_with_its_steps(forge: Forge) -> ThreadId:
    _, branches = forge.ended()
    return forge.point(forge.head(branches[0]).commit)


def another_thread_under_its_id(forge: Forge) -> ThreadId:
    _, branches = forge.forked()
    return forge.point(forge.head(forge.start()).commit, branches[1])


def another_branch_under_its_id(forge: Forge) -> ThreadId:
    _, branches = forge.forked()
    return forge.point(forge.head(branches[0]).commit, branches[1])


def an_end_that_did_not_come(forge: Forge) -> ThreadId:
    _, branches = forge.forked()
    forge.end(branches[0], "failed", "no luck", steps=0)
    return branches[0]


BRANCHES: dict[str, tuple[str, Forgery]] = {
    "another prompt": ("wrong-branch", branch(sets(prompt="Delete it"))),
    "a budget": ("wrong-branch", branch(sets(budget={"maxTokens": 5}))),
    "another item": ("wrong-branch", branch(in_branch(item="b"))),
    "another index": ("wrong-branch", branch(in_branch(index=1))),
    "an index beyond the last": ("wrong-branch", branch(in_branch(index=7))),
    "another name": ("wrong-branch", branch(in_branch(name="item"))),
    "another role": ("wrong-branch", branch(in_branch(role="other"))),
    "another end": ("wrong-branch", branch(in_branch(until=["other"]))),
    "another fork's StepNode": ("wrong-branch", branch(in_branch(fork="0" * 13))),
    "on another fork": ("wrong-branch", on_another_fork),
    "on a start": ("wrong-parent", on_no_fork),
    "under another id": ("wrong-branch", under_another_id),
    "a copy with its steps": ("wrong-branch", a_copy_with_its_steps),
    "another thread under its id": ("wrong-branch", another_thread_under_its_id),
    "another branch under its id": ("wrong-branch", another_branch_under_its_id),
    "failed where it goes on": ("wrong-tag", an_end_that_did_not_come),
}


def test_a_branch_that_is_not_what_its_fork_says_is_told(forge: Forge) -> None:
    told(forge, BRANCHES)


# Joins


def join(change: Change = lambda _: None, policy: str = "", **given: Any) -> Forgery:
    def forge_it(forge: Forge) -> ThreadId:
        thread, _ = forge.ended(policy)
        forge.join(thread, change, **given)
        return thread

    return forge_it


def said(place: int, **values: Any) -> Change:
    return lambda payload: payload.update(_again(payload, place, values))


def _again(payload: Any, place: int, values: Any) -> Any:
    """The payload of a join with other values of a branch, and the summary that goes with them."""
    payload["branches"][place].update(values)
    return join_payload(parse_join(payload))


def with_parents(change: Callable[[Forge, tuple[Oid, ...]], tuple[Oid, ...]]) -> Forgery:
    def forge_it(forge: Forge) -> ThreadId:
        thread, _ = forge.ended()
        at = forge.instance.threads.position(forge.head(thread))
        tips = engines_join(forge.instance, at)[2]
        forge.join(thread, merged=change(forge, tips))
        return thread

    return forge_it


def of_another_fork(forge: Forge, tips: tuple[Oid, ...]) -> tuple[Oid, ...]:
    _, others = forge.ended("need: 2")
    return forge.head(others[0]).commit, tips[1]


def before_its_end(forge: Forge) -> ThreadId:
    thread, branches = forge.forked()
    for each in branches:
        forge.end(each, "killed", steps=0)
    forge.join(thread, said(0, status="completed"))
    return thread


def too_early(forge: Forge) -> ThreadId:
    thread, branches = forge.forked()
    forge.end(branches[0])
    left = {"status": "left", "thread": branches[1], "step": None, "output": None}
    tip = forge.head(branches[0])
    done = {"status": "completed", "thread": branches[0], "step": tip.node, "output": {"text": "fixed"}}
    payload = join_payload(parse_join({"branches": [done, left]}))
    forge.append(thread, JOIN, JOIN_OUTPUT, payload, merged=(tip.commit,))
    return thread


def dropped_where_it_is_waited_for(forge: Forge) -> ThreadId:
    thread, branches = forge.forked()
    forge.end(branches[1])
    forge.end(branches[0], "killed", "no luck", steps=0)
    forge.join(thread, said(0, status="failed"))
    return thread


def a_left_branch_with(**values: Any) -> Forgery:
    def forge_it(forge: Forge) -> ThreadId:
        thread, branches = forge.forked("need: first")
        forge.end(branches[0])
        forge.join(thread, said(1, **values))
        return thread

    return forge_it


def a_remark_before(forge: Forge) -> ThreadId:
    thread, _ = forge.ended()
    forge.append(thread, USER, REMARK, {"remark": "Look."}, agent="human", answer="Look.")
    return thread


def parts(change: Callable[[Forge, Oid], Oid], monkeypatch: pytest.MonkeyPatch) -> Forgery:
    def forge_it(forge: Forge) -> ThreadId:
        thread, _ = forge.ended()
        at = forge.instance.threads.position(forge.head(thread))
        with monkeypatch.context() as patch:
            patch.setattr("uwf_git.store.threads.MOST_PARENTS", 1)
            patch.setattr("uwf_git.store.threads.Threads.gathered", lambda _self, _fork, tips: tuple(tips))
            tips = engines_join(forge.instance, at)[2]
        part = change(forge, _part(forge, forge.head(thread).node, *tips))
        forge.join(thread, merged=(part,))
        return thread

    return forge_it


def _part(forge: Forge, fork: Any, *tips: Oid) -> Oid:
    repository = forge.repository
    text = layout.part_message(fork, len(tips))
    return repository.write_commit(repository.write_folder({}), tips, repository.user, text)


JOINS: dict[str, tuple[str, Forgery]] = {
    "parents in another order": ("wrong-parent", with_parents(lambda _forge, tips: tips[::-1])),
    "a parent less": ("wrong-parent", with_parents(lambda _forge, tips: tips[:1])),
    "a parent more": (
        "wrong-parent",
        with_parents(lambda forge, tips: (*tips, forge.head(forge.start()).commit)),
    ),
    "a branch twice": ("malformed", with_parents(lambda _forge, tips: (tips[0], tips[0]))),
    "a branch of another fork": ("wrong-parent", with_parents(of_another_fork)),
    "a part without need": (
        "wrong-parent",
        with_parents(lambda forge, tips: (_part(forge, "0" * 13, *tips),)),
    ),
    "before a branch had ended": ("wrong-join", before_its_end),
    "before enough had ended": ("wrong-join", too_early),
    "failed without its workflow's word": ("wrong-join", dropped_where_it_is_waited_for),
    "completed as failed": ("wrong-join", join(said(0, status="failed", reason="no luck"))),
    "a reason of a completed branch": ("wrong-join", join(said(0, reason="no luck"))),
    "another output": ("wrong-join", join(said(1, output={"text": "broken"}))),
    "another step": ("wrong-join", join(said(1, step="0" * 13))),
    "another thread": ("wrong-join", join(said(1, thread=new_thread_id()))),
    "a branch less": ("wrong-join", join(lambda payload: payload["branches"].pop())),
    "other words": ("wrong-join", join(sets(summary="All is well"))),
    "a left branch with an output": ("wrong-join", a_left_branch_with(output={"text": "fixed"})),
    "a left branch of another id": ("wrong-join", a_left_branch_with(thread=new_thread_id())),
    "an agent's": ("wrong-join", join(agent="by-hand")),
    "an answer": ("wrong-detail", join(answer="Joined.")),
    "a remark before it": ("wrong-role", a_remark_before),
}


def test_a_join_that_is_not_of_its_branches_is_told(forge: Forge) -> None:
    told(forge, JOINS)


def test_an_end_that_a_join_tells_otherwise_is_told_of_the_branch(forge: Forge) -> None:
    thread, branches = forge.ended()
    forge.join(thread, said(0, status="killed"))
    assert {(each.code, each.thread) for each in forge.findings()} == {("wrong-join", branches[0])}
