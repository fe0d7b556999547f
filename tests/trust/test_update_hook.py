"""A server with the hook of `uwf remote hook` takes what its policy admits, and tells who pushes why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers
import pytest
from forged import Forger
from signers import SigningMachine, team_of_ann, trust_file
from warm import shared as warm_uwf

from uwf_git.store import layout
from uwf_git.sync import ref_names

NONE = "0" * 40
COPY = "01M8HVZZZZZZZZZZZZZZZZZZZZ"
SIGNED = "[{threads: '*', require: signed}]"


class Served:
    """A server with the hook, Ann's and Bob's stores, and Eve with plain git. In a folder a fork judges for the hook,
    on a real server an interpreter."""

    def __init__(
        self, uwf: Callable[..., Any], folder: Path, kept: Path, server: git_servers.Server | None = None
    ) -> None:
        self._uwf = uwf
        self.folder = folder
        self.people = team_of_ann(uwf, folder, kept)
        self.path = (
            folder / "shared.git" if server is None else git_servers.bare(server.folder / "shared.git")
        )
        self.url = server.url(self.path) if server is not None else str(self.path)
        for each in self.people.values():
            with each.config.open("a") as file:
                file.write(server.config if server is not None else "")
        uwf("remote", "hook", "--install", self.path)
        if server is None and (warm := warm_uwf()) is not None:
            judge = warm.program(folder / "judge", "uwf_git.sync.update_hook")
            for hook in (self.path / "hooks").iterdir():
                call = f"{sys.executable} -P -m uwf_git.sync.update_hook"
                hook.write_text(hook.read_text().replace(call, str(judge)))
        self.ann = self.machine("ann")
        git_servers.git("--git-dir", self.ann.store, "config", "remote.origin.url", self.url)

    def machine(self, name: str) -> SigningMachine:
        return SigningMachine(self._uwf, self.folder / f"at-{name}", self.people[name])

    def sets(self, rules: str = SIGNED, maintainers: str = "ann", more: str = "") -> str:
        file = self.folder / "trust.yaml"
        file.write_text(
            trust_file({name: self.people[name] for name in ("ann", "bob")}, maintainers, rules, more)
        )
        return str(self.ann("trust", "set", file).json["commit"])

    def pushes(self, source: str, ref: str, *options: str, store: Path | None = None) -> str:
        """What plain git says to a push, "" if it is taken."""
        done = subprocess.run(
            ["git", "--git-dir", str(store or self.ann.store), "push", *options, self.url, f"{source}:{ref}"],
            capture_output=True, text=True, env={**os.environ, **self.people["eve"].environment}, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == ("uwf refuses" not in done.stderr), done.stderr
        return done.stderr if done.returncode else ""

    def refs(self) -> dict[str, str]:
        return git_servers.refs(self.path)


@pytest.fixture
def served(uwf: Any, hermetic: Path, lasting: Path) -> Served:
    return Served(uwf, hermetic, lasting / "ann")


def unsigned(store: Path, commit: str) -> str:
    """The commit without its signature."""
    git = Forger(store)
    raw = git("cat-file", "commit", commit).encode() + b"\n"
    begin, end = raw.index(b"\ngpgsig"), raw.index(b"-----END SSH SIGNATURE-----") + 27
    return git.write("commit", raw[:begin] + raw[end:])


def test_a_team_works_as_without_it(served: Served) -> None:
    served.sets()
    thread, killed = served.ann.starts(), served.ann.starts()
    served.ann("thread", "pause", killed)
    served.ann("push")
    served.ann("thread", "resume", killed)
    served.ann("thread", "kill", killed)
    served.ann.steps(thread)
    served.ann("push")
    bob = served.machine("bob")
    bob("clone", served.url)
    bob.steps(thread)
    bob("push")
    served.ann("pull")
    assert served.ann.status(thread) == "completed"
    served.ann("gc", "--fold-before", "9999-01-01")
    served.ann("push")
    assert not [
        ref for ref in served.refs() if ref.startswith((layout.THREADS, layout.ARCHIVE, layout.PAUSED))
    ]
    served.ann("publish", "workflow", "relay")
    bob("pull")
    bob.is_sound()


def test_records_that_do_not_meet_the_policy_are_refused_by_name(served: Served) -> None:
    served.sets()
    thread = served.ann.starts()
    served.ann("push")
    served.ann.steps(thread)
    ref = f"{layout.THREADS}{thread}"
    forged = unsigned(served.ann.store, ref)
    said = served.pushes(forged, ref)
    assert f"uwf refuses {ref}: step" in said and "is not signed" in said
    assert f"uwf refuses {ref}" in served.pushes(forged, ref, "--atomic")
    other = ref[:-1] + ("0" if ref[-1] != "0" else "1")
    assert f"its start is that of thread {thread}" in served.pushes(forged, other)
    branch = f"refs/heads/uwf/threads/{thread}"
    assert "is not signed" in served.pushes(forged, branch)
    served.people["ann"].signs(commits=False)
    Forger(served.ann.store)("update-ref", "refs/uwf/threads/01ARZ3NDEKTSV4RRFFQ69G5FAV", forged)
    refused = served.ann("push", check=8).error
    assert "uwf refuses refs/uwf/threads/01ARZ3NDEKTSV4RRFFQ69G5FAV" in refused["message"]
    assert served.refs()[ref] == served.ann.refs()[ref]  # the others of that push are taken


def test_damage_and_unknown_names_are_refused_without_a_policy_too(served: Served) -> None:
    thread = served.ann.starts()
    served.ann("push")
    git = Forger(served.ann.store)
    ref = f"{layout.THREADS}{thread}"
    folder = git.folder(ref)
    folder["evil"] = git.blob(b"")
    bad, other = git.amended(ref, git.tree(folder)), f"{layout.THREADS}01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert "evil does not belong" in served.pushes(bad, other)
    for name in (
        "refs/uwf/threads/no-id",
        "refs/uwf/remotes/origin/x",
        "refs/uwf/local/x/y",
        "refs/uwf/new/x",
    ):
        assert "no ref of that name is shared" in served.pushes(ref, name)
    assert served.pushes(ref, "refs/heads/code") == ""
    blob = git.blob(b"x")
    assert "is a blob" in served.pushes(blob, other)


def test_the_code_of_threads_is_pushed_rewritten_and_deleted_under_a_policy_about_steps(
    served: Served,
) -> None:
    served.sets("[{workflows: '*', signed-by: [ann]}]")
    served.ann("push")
    git, ref = Forger(served.ann.store), f"{layout.WORK}{served.ann.starts()}"
    tree = git("mktree", "--missing")
    first, other = (git("commit-tree", tree, "-m", text) for text in ("one", "other"))
    assert served.pushes(first, ref) == "" and served.refs()[ref] == first
    assert served.pushes(other, ref, "--force") == "" and served.refs()[ref] == other
    assert "is not a commit" in served.pushes(git.blob(b"x"), ref, "--force")
    assert served.pushes("", ref) == "" and ref not in served.refs()
    assert "called after threads" in served.pushes(first, f"{layout.WORK}mine")


def test_history_is_not_rewritten_ends_are_not_replaced_and_nothing_is_deleted(served: Served) -> None:
    served.sets(rules="[]")
    thread, ended = served.ann.starts(), served.ann.starts()
    served.ann.steps(thread)
    served.ann("thread", "kill", ended)
    served.ann("publish", "thread", thread, check=None)
    served.ann("push")
    ref, end = f"{layout.THREADS}{thread}", f"{layout.ARCHIVE}{ended}"
    first = f"{ref}~1"
    assert "may not be rewritten" in served.pushes(first, ref, "--force")
    assert "may not be rewritten" in served.pushes(unsigned(served.ann.store, ref), ref, "--force")
    git = Forger(served.ann.store)
    raw = git("cat-file", "tag", end).encode() + b"\n"
    forged = git.write("tag", raw.replace(b"tagger ann", b"tagger eve"))
    assert "may not be replaced" in served.pushes(forged, end, "--force")
    assert "may not be replaced" in served.pushes(end + "^{commit}", end, "--force")
    for name in (ref, end, "refs/uwf/workflows/relay", layout.POLICY):
        assert "may not be deleted" in served.pushes("", name), name
    assert served.refs().keys() >= {ref, end, "refs/uwf/workflows/relay", layout.POLICY}
    served.sets(rules="[]", more="allow: [deletions, rewrites]\n")
    served.ann("push")
    assert served.pushes(first, ref, "--force") == ""
    assert served.pushes("", ref) == ""
    assert "may not be deleted" in served.pushes("", layout.POLICY)


def test_an_end_or_a_fold_stands_on_the_head_that_is_there(served: Served) -> None:
    served.sets(rules="[]")
    thread, ended = served.ann.starts(), served.ann.starts()
    served.ann("thread", "kill", ended)
    served.ann("push")
    bob = served.machine("bob")
    bob("clone", served.url)
    served.ann.steps(thread, "by ann")
    served.ann("push")
    bob("thread", "kill", thread)
    end = f"{layout.ARCHIVE}{thread}"
    assert "does not stand on its head" in served.pushes(end, end, store=bob.store)
    git = Forger(bob.store)
    other = f"{layout.ARCHIVE}{ended}"
    raw = git("cat-file", "tag", other).encode() + b"\n"
    git("update-ref", other, git.write("tag", raw.replace(b"tagger ann", b"tagger eve")))
    git("update-ref", "-d", end)
    bob("doctor", "--accept-store", check=None)
    bob("gc", "--fold-before", "2100-01-01")
    [fold] = [name for name in bob.refs() if name.startswith(layout.FOLDED)]
    assert "may not be replaced" in served.pushes(fold, fold, store=bob.store)
    active = f"{layout.THREADS}{ended}"
    assert "has ended here" in served.pushes(f"{layout.THREADS}{thread}", active)


def test_the_policy_is_changed_by_its_maintainers_only(served: Served) -> None:
    first = served.sets()
    served.ann("push")
    second = served.sets(maintainers="ann, bob")
    served.ann("push")
    assert "rolled back" in served.pushes(first, layout.POLICY, "--force")
    forged = unsigned(served.ann.store, second)
    assert "policy" in served.pushes(forged, layout.POLICY, "--force")
    git = Forger(served.ann.store)
    stranger = subprocess.run(
        ["git", "--git-dir", str(served.ann.store), "commit-tree", "-S", "-p", second, "-m", "x", f"{second}^{{tree}}"],
        env={**os.environ, **served.people["eve"].environment}, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert "a key of no maintainer" in served.pushes(stranger, layout.POLICY)
    assert "blob" in served.pushes(git.blob(b"people: {}"), layout.POLICY, "--force")
    assert served.refs()[layout.POLICY] == second


def test_the_policy_of_a_push_counts_for_what_comes_with_it(served: Served) -> None:
    served.people["ann"].signs(commits=False)
    thread = served.ann.starts()
    served.people["ann"].signs()
    served.sets()
    refused = served.ann("push", check=8)
    assert thread in refused.error["message"] and "is not signed" in refused.error["message"]
    assert layout.POLICY in served.refs() and f"{layout.THREADS}{thread}" not in served.refs()


def pushed_together(served: Served, *refs: str) -> str:
    """What plain git says to a push of some refs. It pushes those that the server has in the order of their names, and
    then the new ones."""
    done = subprocess.run(
        ["git", "--git-dir", str(served.ann.store), "push", served.url, *(f"+{each}:{each}" for each in refs)],
        capture_output=True, text=True, env={**os.environ, **served.people["ann"].environment}, check=False,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("is_new", (True, False))
def test_a_policy_judges_what_is_pushed_with_it_before_it_and_after_it(served: Served, is_new: bool) -> None:
    served.sets()
    threads = [served.ann.starts() for _ in range(3)]
    thread, bare, other = refs = [f"{layout.THREADS}{each}" for each in threads]
    served.ann("push")
    if is_new:
        for ref in refs:
            Forger(served.path)("update-ref", "-d", ref)
    for each in threads:
        served.ann.steps(each)
    for ref in (thread, bare):
        Forger(served.ann.store)("update-ref", ref, unsigned(served.ann.store, ref))
    there = served.refs()
    assert (thread in there) is not is_new

    strict = served.ann.refs()[layout.POLICY]
    loosened = served.sets(rules="[]")
    git = Forger(served.ann.store)
    git("update-ref", layout.POLICY, unsigned(served.ann.store, loosened))  # by nobody whom `strict` names
    said = pushed_together(served, layout.POLICY, thread)
    assert f"uwf refuses {thread}: step" in said and "is not signed" in said, said
    assert f"uwf refuses {layout.POLICY}" in said and served.refs() == there

    git("update-ref", layout.POLICY, loosened)
    assert "refuses" not in pushed_together(served, layout.POLICY, thread)
    assert served.refs() == there | {layout.POLICY: loosened, thread: served.ann.refs()[thread]}
    served.machine("bob")("clone", served.url)

    assert served.sets(more=accepting(served, thread)) != strict
    said = pushed_together(served, layout.POLICY, bare, other)
    assert f"uwf refuses {bare}: step" in said and said.count("uwf refuses") == 1
    now = {ref: oid for ref, oid in served.refs().items() if oid == served.ann.refs()[ref]}
    assert now.keys() >= {other, layout.POLICY} and bare not in now
    served.machine("eve")("clone", served.url)


def test_a_push_of_many_refs_is_judged_at_once_and_each_by_itself(served: Served) -> None:
    served.sets()
    served.ann("push")
    threads = [served.ann.starts() for _ in range(6)]
    git = Forger(served.ann.store)
    bad = f"{layout.THREADS}{threads[2]}"
    git("update-ref", bad, unsigned(served.ann.store, bad))
    hook = served.path / "hooks" / "update"
    text = hook.read_text()
    log = served.folder / "judged"
    hook.write_text(text.replace('judge "$1"', f'echo "$1" >>{log}; judge "$1"'))
    refused = served.ann("push", check=8).error["message"]
    assert f"uwf refuses {bad}: start" in refused
    there = served.refs()
    assert [f"{layout.THREADS}{each}" in there for each in threads] == [True, True, False, True, True, True]
    assert log.read_text().splitlines() == [bad]  # no other needed a process of its own
    for thread in threads[:2] + threads[3:]:
        served.ann("thread", "kill", thread)
    log.unlink()
    served.ann("push", check=8)
    assert log.read_text().splitlines() == [bad]
    assert not [ref for ref in served.refs() if ref.startswith(layout.THREADS)]


def test_a_verdict_is_about_one_push_and_no_other(served: Served) -> None:
    served.sets()
    thread = served.ann.starts()
    served.ann("push")
    ref = f"{layout.THREADS}{thread}"
    served.ann.steps(thread)
    forged = unsigned(served.ann.store, ref)
    folder = served.path / "uwf" / "hook"
    folder.mkdir(exist_ok=True)
    first = served.path / "hooks" / "pre-receive"
    # The pre-receive of another push has the same process id, and admitted this.
    first.write_text(first.read_text().replace("rm -f", f"echo '{ref} x {forged}' >\"$verdicts\"; rm -f"))
    assert "is not signed" in served.pushes(forged, ref)


def test_it_fails_closed(served: Served) -> None:
    thread = served.ann.starts()
    served.ann("push")
    served.ann.steps(thread)
    ref = f"{layout.THREADS}{thread}"
    hooks = [served.path / "hooks" / name for name in ("update", "pre-receive")]
    text = hooks[0].read_text()
    for hook in hooks:
        hook.write_text(text.replace("judge() { ", "judge() { /nowhere"))
    before = served.refs()
    done = subprocess.run(
        ["git", "--git-dir", str(served.ann.store), "push", served.url, f"{ref}:{ref}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode and served.refs() == before
    for hook in hooks:
        hook.write_text(text)
    (served.path / "uwf" / "policy").write_text("nonsense\n")
    assert "cannot be read" in served.pushes(ref, ref)
    (served.path / "uwf" / "policy").unlink()
    assert served.pushes(ref, ref) == ""


def test_a_push_of_one_thread_takes_the_policy_that_judges_it_along(served: Served) -> None:
    served.sets()
    thread = served.ann.starts()
    served.ann("push", "origin", thread)
    assert layout.POLICY in served.refs() and f"refs/uwf/threads/{thread}" in served.refs()
    assert not any(ref.startswith(layout.WORKFLOWS) for ref in served.refs())
    bob = served.machine("bob")
    bob("clone", served.url)
    assert bob("trust", "show").json["people"].keys() == {"ann", "bob"}


def test_a_hook_of_somebody_else_is_left_as_it_is(uwf: Any, hermetic: Path) -> None:
    bare = hermetic / "bare.git"
    git_servers.git("init", "--quiet", "--bare", bare)
    hook = bare / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    assert uwf("remote", "hook", "--install", bare, check=2).error["code"] == "usage"
    hook.unlink()
    assert uwf("remote", "hook", "--install", bare).json == {"path": str(hook)}
    assert uwf("remote", "hook", "--install", bare).json == {"path": str(hook)}
    first = hook.with_name("pre-receive")
    first.write_text("#!/bin/sh\nexit 0\n")
    assert "each ref of a push is judged by what is there" in uwf("remote", "hook", "--install", bare).err
    assert first.read_text() == "#!/bin/sh\nexit 0\n"
    assert hook.read_text() == uwf("remote", "hook", "--format", "text").out
    assert os.access(hook, os.X_OK)
    assert uwf("remote", "hook", "--install", hermetic, check=3).error["code"] == "not_found"


@pytest.mark.parametrize("setting", ["{0}/elsewhere", "elsewhere", "~/elsewhere"])
@pytest.mark.sample(2)
def test_the_hook_is_written_to_where_git_runs_it(
    setting: str, served: Served, uwf: Any, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(served.path))
    served.sets()
    git_servers.git("-C", served.path, "config", "core.hooksPath", setting.format(served.path))
    done = uwf("remote", "hook", "--install", served.path)
    assert done.json["path"] == str(served.path / "elsewhere" / "update")
    assert "each repository that uses it" in done.json["warnings"][0]
    served.ann.starts()
    served.ann("push")
    assert "uwf refuses" in served.pushes("refs/uwf/trust/policy", f"refs/uwf/threads/{COPY}")


@pytest.mark.parametrize("transport", ["http", pytest.param("ssh", marks=pytest.mark.extended)])
def test_a_server_elsewhere_tells_who_pushes_why_not(
    transport: str, uwf: Any, hermetic: Path, lasting: Path
) -> None:
    with git_servers.serve(transport) as server:
        served = Served(uwf, hermetic, lasting / "ann", server)
        served.sets()
        thread = served.ann.starts()
        served.ann("push")
        ref = f"{layout.THREADS}{thread}"
        assert served.refs()[ref] == served.ann.refs()[ref]
        served.ann.steps(thread)
        forged = unsigned(served.ann.store, ref)
        Forger(served.ann.store)("update-ref", ref, forged)
        refused = served.ann("push", check=8).error["message"]
        assert f"uwf refuses {ref}: step" in refused and "is not signed" in refused


def test_an_edit_of_a_published_definition_is_held_to_its_rule(served: Served) -> None:
    served.ann("publish", "workflow", "relay")
    served.sets("[{workflows: '*', signed-by: [ann]}]", more=accepting(served, "refs/uwf/workflows/relay"))
    served.ann("push")
    git, branch = Forger(served.ann.store), "refs/heads/uwf/workflows/relay"
    tip = served.refs()[branch]
    folder = git.folder(tip)
    folder["workflow.yaml"] = git.blob(git.read(f"{tip}:workflow.yaml").replace(b"One writes", b"Eve writes"))
    edit = git("commit-tree", git.tree(folder), "-p", tip, "-m", "fix")
    said = served.pushes(edit, branch)
    assert f"uwf refuses {branch}" in said and "workflows *: signed by ann" in said
    assert f"uwf refuses {branch}" in served.pushes(edit, branch, "--atomic")
    file = served.folder / "changed.yaml"
    file.write_text(served.ann.root.with_name("at-ann.yaml").read_text().replace("One writes", "Ann writes"))
    proposal = served.ann("workflow", "propose", file, "--branch", "change").json["commit"]
    forged = unsigned(served.ann.store, proposal)
    assert "is not signed" in served.pushes(forged, branch)
    merge = git("commit-tree", f"{proposal}^{{tree}}", "-p", tip, "-p", proposal, "-m", "Merge")
    assert served.pushes(merge, branch) == ""
    back = git("commit-tree", f"{tip}^{{tree}}", "-p", merge, "-p", tip, "-m", "Merge")
    assert f"uwf refuses {branch}" in served.pushes(back, branch)
    served.ann("pull")
    served.ann("publish", "workflow", "relay")


@pytest.mark.parametrize(
    "name",
    [
        *("refs/heads/uwf", "refs/heads/uwf/threads", "refs/heads/uwf/base", "refs/heads/uwf/base/workflows"),
        *(
            "refs/heads/UWF",
            "refs/heads/Uwf/x",
            "refs/heads/uwf/Threads/x",
            "refs/heads/u\u200bwf/x",
            "refs/heads/ｕｗｆ",
        ),
        *("refs/heads/refs/uwf/x", "refs/tags/uwf", "refs/tags/uwf/threads/x", "refs/tags/refs/uwf/x"),
        *("refs/heads/uwf/threads/x", "refs/heads/uwf/base/x", "refs/UWF/threads/x"),
        *("refs/uwf/work/x", f"refs/uwf/work/{COPY}/x", "refs/uwf/work/"),
        *("refs/replace/01", "refs/original/x", "refs/grafts", "refs/unknown/x"),
    ],
)
def test_names_that_block_or_shadow_those_of_uwf_are_refused(name: str) -> None:
    assert ref_names.problem(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "refs/heads/main",
            "refs/heads/feature/uwf",
            "refs/heads/uwf-git",
            "refs/heads/ünï",
            "refs/tags/v1.0",
        ),
        *("refs/notes/commits", "refs/pull/1/head", "refs/merge-requests/1/head", "refs/changes/01/1/1"),
        *(f"refs/heads/uwf/threads/{COPY}", f"refs/heads/uwf/base/{COPY}", "refs/heads/uwf/workflows/relay"),
        *(
            "refs/heads/uwf/base/workflows/relay",
            "refs/heads/uwf/base/branches/mine/x",
            f"refs/uwf/work/{COPY}",
        ),
        *(
            "refs/heads/uwf/proposals/x",
            "refs/heads/uwf/mine",
            f"refs/uwf/threads/{COPY}",
            "refs/uwf/fleets/x",
        ),
    ],
)
def test_names_of_uwf_and_of_others_pass(name: str) -> None:
    assert ref_names.problem(name) == ""


def test_a_push_of_names_that_block_or_shadow_is_refused_and_others_pass(served: Served) -> None:
    thread = served.ann.starts()
    served.ann("push")
    ref = f"{layout.THREADS}{thread}"
    commit = served.ann.refs()[ref]
    for name in ("refs/heads/uwf", "refs/tags/uwf/x", f"refs/replace/{commit}", "refs/heads/ｕｗｆ/x"):
        assert f"uwf refuses {name}"[:24] in served.pushes(ref, name), name
    for name in (
        "refs/heads/main",
        "refs/tags/v1",
        "refs/notes/commits",
        "refs/pull/1/head",
        "refs/heads/ünï",
    ):
        assert served.pushes(ref, name) == "", name
    served.ann("publish", "thread", thread, check=None)
    assert f"refs/heads/uwf/threads/{thread}" in served.refs()


def test_a_copy_of_a_thread_under_another_id_is_refused_and_found(served: Served) -> None:
    thread = served.ann.starts()
    served.ann("push")
    ref, copy = f"{layout.THREADS}{thread}", f"{layout.THREADS}{COPY}"
    assert f"its start is that of thread {thread}" in served.pushes(ref, copy)
    Forger(served.path)("update-ref", copy, served.ann.refs()[ref])
    assert "its start is that of" in served.ann("pull", check=7).error["message"]
    found = served.ann("verify", "--remote", "origin", check=7).json["findings"]
    assert [(each["code"], each["ref"]) for each in found] == [("wrong-name", copy)]
    Forger(served.path)("update-ref", "-d", copy)
    fork = served.ann("thread", "fork", thread).json["thread"]
    served.ann("push")
    assert f"{layout.THREADS}{fork}" in served.refs()
    served.machine("bob")("clone", served.url)


def test_what_is_beside_a_thread_is_judged_with_it_in_each_order(served: Served) -> None:
    thread, other = served.ann.starts(), served.ann.starts("Another")
    served.ann("thread", "step", other, "--agent", "false", check=6)
    served.ann("thread", "pause", thread)
    paused, attempts = f"{layout.PAUSED}{thread}", f"{layout.ATTEMPTS}{other}"
    for ref in (paused, attempts):
        assert "there is no thread" in served.pushes(ref, ref)
    theirs = f"{layout.ATTEMPTS}{thread}"
    both = [f"{layout.THREADS}{thread}:{layout.THREADS}{thread}", f"{attempts}:{theirs}"]
    for order in (both, both[::-1]):
        done = subprocess.run(
            ["git", "--git-dir", str(served.ann.store), "push", served.url, *order],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert f"uwf refuses {theirs}" in done.stderr and "of another thread" in done.stderr
        assert theirs not in served.refs()
    served.ann("push")
    assert served.refs().keys() >= {paused, attempts, f"{layout.THREADS}{thread}"}
    served.machine("bob")("clone", served.url)


def test_a_base_branch_that_hides_steps_is_told_and_refused(served: Served) -> None:
    thread = served.ann.starts()
    served.ann.steps(thread)
    served.ann("publish", "thread", thread, check=None)
    served.ann("push")
    head, base = f"refs/heads/uwf/threads/{thread}", f"refs/heads/uwf/base/{thread}"
    before = served.refs()[base]
    commit = served.refs()[head]
    for target in (commit, f"{commit}~1"):
        assert "so that those up to it are not shown" in served.pushes(target, base, "--force")
    Forger(served.path)("update-ref", base, commit)
    found = served.ann("verify", "--remote", "origin", check=7).json["findings"]
    assert [(each["code"], each["ref"]) for each in found] == [("wrong-base", base)]
    Forger(served.path)("update-ref", base, before)
    fork = served.ann("thread", "fork", thread, "--at", "1").json["thread"]
    served.ann.steps(fork, "otherwise")
    served.ann("push")
    served.ann("publish", "thread", fork, check=None)
    served.ann("verify", "--remote", "origin")


def test_a_policy_that_is_gone_or_older_on_the_remote_is_told(served: Served) -> None:
    first = served.sets()
    served.ann("push")
    served.sets(more="allow: [deletions]\n")
    served.ann("push")
    git = Forger(served.path)
    for command, said in (
        (("-d", layout.POLICY), "was deleted"),
        ((layout.POLICY, first), "was rolled back"),
    ):
        git("update-ref", *command)
        for words in (("pull",), ("verify", "--remote", "origin")):
            done = served.ann(*words, check=14)
            assert said in json.dumps(done.json), done.out
    served.ann("push")
    served.ann("pull")
    served.ann("verify", "--remote", "origin")


def accepting(served: Served, ref: str) -> str:
    return f'accepted: ["{served.ann.refs()[ref]}"]\n'


def test_an_active_ref_of_an_ended_thread_must_be_in_its_end(served: Served) -> None:
    thread = served.ann.starts()
    served.ann.steps(thread)
    served.ann("thread", "kill", thread)
    served.ann("push")
    fork = served.ann("thread", "fork", thread, "--at", "0").json["thread"]
    served.ann.steps(fork, "otherwise")
    ref = f"{layout.THREADS}{thread}"
    assert "has ended here" in served.pushes(f"{layout.THREADS}{fork}", ref)
    assert ref not in served.refs()
