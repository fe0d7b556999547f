"""History that a remote has rewritten is told and never taken over; both ways out work; honest histories that look
like it are taken as before."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import commands
import pytest
from conftest import Uwf
from programs import program
from test_pull_cases import LOOP, Pair
from two_machines import Machine

STATUS = 12
Change = Callable[[str], str]


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


def raw(repository: Path, oid: str) -> str:
    return commands.git("--git-dir", repository, "cat-file", "-p", oid)


def written(repository: Path, text: str, kind: str = "commit") -> str:
    done = subprocess.run(
        ["git", "--git-dir", repository, "hash-object", "-t", kind, "-w", "--stdin"],
        input=text.rstrip("\n") + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def again(repository: Path, head: str, steps: int, change: Change) -> str:
    """The last steps committed once more with a change of their text; their new head."""
    listed = commands.git("--git-dir", repository, "rev-list", "--first-parent", f"-{steps}", head).split()
    parent = ""
    for oid in reversed(listed):
        lines = raw(repository, oid).split("\n")
        if parent:
            place = next(i for i, line in enumerate(lines) if line.startswith("parent "))
            lines[place] = f"parent {parent}"
        parent = written(repository, change("\n".join(lines)))
    return parent


def by_the_boss(text: str) -> str:
    lines = text.split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith(("committer ", "tagger ")))
    word, _, rest = lines[place].partition(" ")
    lines[place] = f"{word} The Boss <boss@example.com> {' '.join(rest.split(' ')[-2:])}"
    return "\n".join(lines)


def a_day_later(text: str) -> str:
    lines = text.split("\n")
    place = next(i for i, line in enumerate(lines) if line.startswith(("committer ", "tagger ")))
    words = lines[place].split(" ")
    words[-2] = str(int(words[-2]) + 86_400)
    lines[place] = " ".join(words)
    return "\n".join(lines)


def unsigned(text: str) -> str:
    kept, inside = [], False
    for line in text.split("\n"):
        inside = line.startswith("gpgsig ") or (inside and line.startswith(" "))
        if line.startswith("-----BEGIN "):
            break
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def forces(pair: Pair, ref: str, oid: str | None) -> None:
    pair.git("update-ref", *(("-d", ref) if oid is None else (ref, oid)))


def active(pair: Pair) -> str:
    return f"refs/uwf/threads/{pair.thread}"


def archive(pair: Pair) -> str:
    return f"refs/uwf/archive/{pair.thread}"


def ended(pair: Pair) -> str:
    """Both machines have the thread's end; its tag."""
    pair.works(pair.ada, "last", "done")
    pair.ada("push")
    pair.bob("pull")
    return pair.git("rev-parse", archive(pair)).strip()


def signs(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every process from now on sign with a key of its own."""
    key = folder / "key"
    words = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", key]
    subprocess.run(words, check=True)
    config = folder / "signing.gitconfig"
    config.write_text(
        f"[include]\n\tpath = {os.environ['GIT_CONFIG_GLOBAL']}\n[gpg]\n\tformat = ssh\n"
        f"[user]\n\tsigningKey = {key}\n[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))


def is_told(pair: Pair, who: Machine, ref: str, before: dict[str, str]) -> None:
    """A pull says it with a status of its own, moves nothing of ours, and keeps theirs beside."""
    now = pair.git("rev-parse", ref).strip()
    for _ in range(2):  # tracking refs have moved at the first
        done = who("pull", check=STATUS)
        assert done.error["code"] == "rewritten"
        [told] = done.json["rewritten"]
        assert told["now"] == now
        assert pair.thread in done.error["message"]
        assert f"uwf remote accept-rewrite {pair.thread}" in done.error["hint"]
        assert f"uwf remote reject-rewrite {pair.thread}" in done.error["hint"]
        assert who.refs() == before
    kept = ref.removeprefix("refs/uwf/")
    assert pair.git("rev-parse", f"refs/uwf/rewritten/origin/{kept}", at=who.store).strip() == now
    assert {each["code"] for each in who("verify", "--remote", "origin", check=STATUS).json["findings"]} == {
        "rewritten"
    }


@pytest.mark.parametrize("change", [by_the_boss, a_day_later], ids=["committer", "date"])
def test_steps_committed_again_are_told_and_not_taken(pair: Pair, change: Change) -> None:
    before = pair.bob.refs()
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, change))
    is_told(pair, pair.bob, active(pair), before)


def test_a_signature_that_was_stripped_is_told_with_who_and_when(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs(pair.ada, tmp_path, monkeypatch)
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    before = pair.ada.refs()
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, unsigned))
    is_told(pair, pair.ada, active(pair), before)
    [told] = pair.ada("pull", check=STATUS).json["rewritten"]
    assert (told["step"], told["before"]["signed"], told["after"]["signed"]) == (2, True, False)
    assert told["after"]["by"] == told["before"]["by"]


def test_another_step_under_the_id_is_told_by_its_author(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    before = pair.bob.refs()
    forged = {"GIT_COMMITTER_NAME": "Mallory", "GIT_COMMITTER_EMAIL": "mallory@example.com"}
    agent = """uwf-exec echo '{"text": "lgtm", "status": "more"}'"""
    mallory("thread", "step", pair.thread, "--agent", agent, env=forged)
    pair.git("push", "-q", "--force", str(pair.shared), active(pair), at=mallory.store)
    is_told(pair, pair.bob, active(pair), before)
    message = pair.bob("pull", check=STATUS).error["message"]
    assert "step 2 is now by Mallory <mallory@example.com>, 20" in message


def test_an_end_of_the_same_steps_by_another_tag_is_told(pair: Pair) -> None:
    tag = ended(pair)
    before = pair.bob.refs()
    forces(pair, archive(pair), written(pair.shared, by_the_boss(raw(pair.shared, tag)), "tag"))
    is_told(pair, pair.bob, archive(pair), before)


def test_an_end_that_another_history_has_is_told(pair: Pair) -> None:
    tag = ended(pair)
    before = pair.bob.refs()
    head = again(pair.shared, pair.git("rev-parse", f"{tag}^{{commit}}").strip(), 1, by_the_boss)
    text = raw(pair.shared, tag).split("\n")
    text[0] = f"object {head}"
    forces(pair, archive(pair), written(pair.shared, "\n".join(text), "tag"))
    is_told(pair, pair.bob, archive(pair), before)


def test_an_end_that_was_taken_away_for_other_steps_is_told(pair: Pair) -> None:
    tag = ended(pair)
    before = pair.bob.refs()
    head = again(pair.shared, pair.git("rev-parse", f"{tag}^{{commit}}").strip(), 1, a_day_later)
    forces(pair, archive(pair), None)
    forces(pair, active(pair), head)
    is_told(pair, pair.bob, active(pair), before)


def test_a_rewrite_that_plain_git_has_fetched_is_told(pair: Pair) -> None:
    before = pair.bob.refs()
    pair.bob("pull")
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, by_the_boss))
    pair.git("fetch", "-q", "origin", at=pair.bob.store)
    shown = pair.bob("thread", "show", pair.thread)
    assert "was rewritten on origin" in shown.err
    is_told(pair, pair.bob, active(pair), before)


def test_steps_that_continue_a_rewritten_history_do_not_make_it_true(
    pair: Pair, uwf: Uwf, tmp_path: Path
) -> None:
    before = pair.bob.refs()
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, by_the_boss))
    pair.bob("pull", check=STATUS)
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    pair.works(mallory, "more of it")
    mallory("push")
    is_told(pair, pair.bob, active(pair), before)


def test_a_workflow_that_was_replaced_is_told(pair: Pair) -> None:
    ref = "refs/uwf/workflows/loop"
    before = pair.bob.refs()
    head = again(pair.shared, before[ref], 1, by_the_boss)
    forces(pair, ref, head)
    done = pair.bob("pull", check=STATUS)
    assert done.json["rewritten"][0]["ref"] == ref
    assert "uwf remote accept-rewrite workflows/loop" in done.error["hint"]
    assert pair.bob.refs() == before
    pair.bob("remote", "reject-rewrite", "workflows/loop")
    assert pair.git("rev-parse", ref).strip() == before[ref]
    pair.bob("pull")


def test_rejecting_puts_ours_back_for_everybody(pair: Pair) -> None:
    before = pair.bob.refs()
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, by_the_boss))
    pair.bob("pull", check=STATUS)
    assert pair.bob("remote", "reject-rewrite", pair.thread).json["refs"] == [active(pair)]
    assert pair.git("rev-parse", active(pair)).strip() == before[active(pair)]
    for who in (pair.bob, pair.ada):
        who("pull")
        who("verify", "--remote", "origin")
    assert "rewritten" not in pair.git("for-each-ref", at=pair.bob.store)


def test_rejecting_puts_an_end_back_and_takes_a_forged_head_away(pair: Pair) -> None:
    tag = ended(pair)
    head = again(pair.shared, pair.git("rev-parse", f"{tag}^{{commit}}").strip(), 1, a_day_later)
    forces(pair, archive(pair), None)
    forces(pair, active(pair), head)
    pair.bob("pull", check=STATUS)
    pair.bob("remote", "reject-rewrite", pair.thread)
    listed = pair.git("for-each-ref", "--format=%(refname) %(objectname)")
    assert f"{archive(pair)} {tag}" in listed and active(pair) not in listed
    pair.bob("pull")


def test_rejecting_waits_for_who_moves_it_meanwhile(pair: Pair) -> None:
    before = pair.bob.refs()
    forged = again(pair.shared, before[active(pair)], 1, by_the_boss)
    forces(pair, active(pair), forged)
    pair.bob("pull", check=STATUS)
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, a_day_later))
    assert pair.bob("remote", "reject-rewrite", pair.thread, check=4).error["code"] == "head_moved"


def test_accepting_gives_theirs_the_id_and_keeps_ours_beside(pair: Pair) -> None:
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    ours = pair.bob.refs()[active(pair)]
    forged = again(pair.shared, ours, 1, by_the_boss)
    forces(pair, active(pair), forged)
    pair.bob("pull", check=STATUS)
    pair.bob("remote", "accept-rewrite", pair.thread[:10])
    assert pair.bob.refs()[active(pair)] == forged
    kept = f"refs/uwf/rewritten/origin/accepted/threads/{pair.thread}"
    assert pair.git("rev-parse", kept, at=pair.bob.store).strip() == ours
    assert pair.bob("pull").json["adopted"] == []
    pair.bob("verify", "--all")
    pair.bob("verify", "--remote", "origin")


def test_accepting_other_steps_makes_ours_a_fork(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    ended(pair)
    pair.works(mallory, "another second")
    forces(pair, archive(pair), None)
    pair.git("push", "-q", "--force", str(pair.shared), active(pair), at=mallory.store)
    is_told(pair, pair.bob, active(pair), pair.bob.refs())
    done = pair.bob("remote", "accept-rewrite", pair.thread)
    assert any("fork" in each for each in done.json["adopted"]), done.json
    pair.bob("verify", "--all")


def test_what_is_not_rewritten_is_not_accepted(pair: Pair) -> None:
    assert pair.bob("remote", "accept-rewrite", pair.thread, check=3).error["code"] == "not_found"


def test_one_rewritten_thread_keeps_no_other_back(pair: Pair) -> None:
    other = pair.ada.starts("another", workflow="loop")
    pair.works(pair.ada, "first", thread=other)
    pair.ada("push")
    forces(pair, active(pair), again(pair.shared, pair.bob.refs()[active(pair)], 1, by_the_boss))
    pair.bob("pull", check=STATUS)
    assert pair.head(pair.bob, other) == pair.head(pair.ada, other)


def test_a_shared_step_of_a_rewritten_thread_is_refused_before_its_agent_runs(
    pair: Pair, tmp_path: Path
) -> None:
    forces(pair, active(pair), again(pair.shared, pair.bob.refs()[active(pair)], 1, by_the_boss))
    ran = tmp_path / "ran"
    agent = f"uwf-exec sh -c 'touch {ran}; echo {{}}'"
    done = pair.bob("thread", "step", pair.thread, "--remote", "origin", "--agent", agent, check=STATUS)
    assert done.error["code"] == "rewritten" and not ran.exists()


def test_a_remote_that_was_rolled_back_is_told_and_loses_nothing(pair: Pair) -> None:
    old = pair.git("rev-parse", active(pair)).strip()
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    before = pair.bob.refs()
    forces(pair, active(pair), old)
    done = pair.bob("pull", check=STATUS)
    assert [each["now"] for each in done.json["rolledBack"]] == [old]
    assert "rewritten" not in done.json and pair.bob.refs() == before
    found = pair.bob("verify", "--remote", "origin", check=STATUS).json["findings"]
    assert [each["code"] for each in found] == ["rolled-back"]
    pair.bob("push")
    assert "rolledBack" not in pair.bob("pull").json
    pair.bob("verify", "--remote", "origin")


def test_other_steps_after_a_rollback_are_told(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    old = pair.git("rev-parse", active(pair)).strip()
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    before = pair.bob.refs()
    forces(pair, active(pair), old)
    pair.bob("pull", check=STATUS)
    pair.works(mallory, "another second")
    mallory("push")
    is_told(pair, pair.bob, active(pair), before)


def test_a_thread_deleted_and_made_anew_by_another_hand_is_told(pair: Pair) -> None:
    ours = pair.bob.refs()[active(pair)]
    pair.bob("pull")
    forces(pair, active(pair), None)
    pair.bob("pull")
    before = pair.bob.refs()
    forces(pair, active(pair), again(pair.shared, ours, 1, by_the_boss))
    is_told(pair, pair.bob, active(pair), before)


def test_a_folded_end_that_was_replaced_is_told(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    tag = ended(pair)
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    text = written(mallory.store, by_the_boss(raw(pair.shared, tag)), "tag")
    pair.git("update-ref", archive(pair), text, at=mallory.store)
    pair.bob("gc", "--fold-before", "2100-01-01")
    pair.bob("push")
    ours = pair.bob.refs()
    mallory("doctor", "--accept-store", check=None)
    mallory("gc", "--fold-before", "2100-01-01")
    [fold] = [ref for ref in ours if "/folded/" in ref]
    pair.git("push", "-q", "--force", str(pair.shared), fold, at=mallory.store)
    done = pair.bob("pull", check=STATUS)
    assert done.json["rewritten"][0]["ref"] == fold and pair.bob.refs() == ours
    name = fold.removeprefix("refs/uwf/")
    pair.bob("remote", "reject-rewrite", name)
    assert pair.git("rev-parse", fold).strip() == ours[fold]
    pair.bob("pull")


def test_an_end_replaced_by_a_fold_is_told(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    tag = ended(pair)
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    pair.git(
        "update-ref",
        archive(pair),
        written(mallory.store, by_the_boss(raw(pair.shared, tag)), "tag"),
        at=mallory.store,
    )
    mallory("doctor", "--accept-store", check=None)
    mallory("gc", "--fold-before", "2100-01-01")
    before = pair.bob.refs()
    [fold] = [ref for ref in mallory.refs() if "/folded/" in ref]
    pair.git("push", "-q", "--force", str(pair.shared), fold, at=mallory.store)
    forces(pair, archive(pair), None)
    done = pair.bob("pull", check=STATUS)
    assert done.json["rewritten"][0]["ref"] == fold and pair.bob.refs() == before
    pair.bob("remote", "accept-rewrite", fold.removeprefix("refs/uwf/"))
    assert "The Boss" in pair.git("show", f"{fold}:archive/{pair.thread}", at=pair.bob.store)
    pair.bob("pull")


def test_a_mirror_tells_what_its_remote_has_rewritten(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    root = tmp_path / "mirror"
    subprocess.run(["git", "clone", "-q", "--mirror", pair.shared, root / "store.git"], check=True)
    mirror = Machine(uwf, root)
    mirror("verify", "--all")
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.git("remote", "update", at=mirror.store)
    mirror("verify", "--all")
    forces(pair, active(pair), again(pair.shared, pair.ada.refs()[active(pair)], 1, by_the_boss))
    pair.git("remote", "update", at=mirror.store)
    for _ in range(2):
        found = mirror("verify", "--all", check=STATUS).json["findings"]
        assert [each["code"] for each in found] == ["rewritten"]


def forged_fold(pair: Pair, uwf: Uwf, tmp_path: Path) -> tuple[str, Machine]:
    """Mallory ends the active thread with a step of theirs and folds it; the ref of the fold in their store."""
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    pair.works(mallory, "lgtm", "done")
    mallory("doctor", "--accept-store", check=None)
    mallory("gc", "--fold-before", "2100-01-01")
    [fold] = [ref for ref in mallory.refs() if "/folded/" in ref]
    return fold, mallory


def test_a_fold_that_ends_an_active_thread_otherwise_is_told(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    fold, mallory = forged_fold(pair, uwf, tmp_path)
    before = pair.bob.refs()
    pair.git("push", "-q", str(pair.shared), fold, at=mallory.store)
    forces(pair, active(pair), None)
    assert pair.bob("pull", check=STATUS).json["rewritten"][0]["ref"] == fold
    assert pair.bob.refs() == before
    pair.bob("verify", "--remote", "origin", check=STATUS)


@pytest.mark.parametrize("how", ["instead-of-the-head", "with-copies-beside-the-head"])
def test_an_end_that_hides_the_head_is_told(pair: Pair, uwf: Uwf, tmp_path: Path, how: str) -> None:
    mallory = Machine(uwf, tmp_path / "mallory")
    mallory("clone", pair.shared)
    pair.works(pair.ada, "second")
    pair.ada("push")
    pair.bob("pull")
    pair.works(mallory, "lgtm", "done")
    tag = mallory.refs()[archive(pair)]
    pair.git("push", "-q", str(pair.shared), archive(pair), at=mallory.store)
    if how == "instead-of-the-head":
        forces(pair, active(pair), None)
    else:
        text = raw(pair.shared, tag).split("\n")
        text[0] = f"object {again(pair.shared, text[0].split(' ')[1], 2, by_the_boss)}"
        forces(pair, archive(pair), written(pair.shared, "\n".join(text), "tag"))
    before = pair.bob.refs()
    for _ in range(2):
        [told] = pair.bob("pull", check=STATUS).json["rewritten"]
        assert (told["ref"], told["seen"]) == (active(pair), before[active(pair)])
        assert pair.bob.refs() == before


@pytest.mark.parametrize("where", ["head", "fold"])
def test_a_rewrite_is_told_again_though_nothing_was_recorded_before(
    pair: Pair, uwf: Uwf, tmp_path: Path, where: str
) -> None:
    fold, mallory = forged_fold(pair, uwf, tmp_path)
    (pair.bob.store / "uwf" / "seen" / "origin").unlink()  # as in a store of an earlier version
    before = pair.bob.refs()
    if where == "head":
        forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, by_the_boss))
    else:
        pair.git("push", "-q", str(pair.shared), fold, at=mallory.store)
        forces(pair, active(pair), None)
    for _ in range(2):
        assert pair.bob("pull", check=STATUS).json["rewritten"]
        assert pair.bob.refs() == before


def test_a_bundle_with_another_fold_leaves_our_threads_as_they_are(
    pair: Pair, uwf: Uwf, tmp_path: Path
) -> None:
    fold, mallory = forged_fold(pair, uwf, tmp_path)
    before = pair.bob.refs()
    bundle = tmp_path / "forged.bundle"
    pair.git("bundle", "create", "-q", str(bundle), fold, at=mallory.store)
    pair.bob("unbundle", bundle)
    assert {name: oid for name, oid in pair.bob.refs().items() if name in before} == before
    assert pair.bob.status(pair.thread) == "idle"


def test_a_bundle_of_our_steps_in_other_commits_replaces_none(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs(pair.ada, tmp_path, monkeypatch)
    pair.works(pair.ada, "second")
    before = pair.ada.refs()
    pair.ada("push")
    forces(
        pair,
        active(pair),
        again(pair.shared, before[active(pair)], 1, lambda text: by_the_boss(unsigned(text))),
    )
    bundle = tmp_path / "forged.bundle"
    pair.git("bundle", "create", "-q", str(bundle), active(pair))
    pair.git("remote", "remove", "origin", at=pair.ada.store)
    pair.ada("unbundle", bundle)
    assert pair.ada.refs() == before


@pytest.mark.parametrize("where", ["archive", "threads"])
def test_an_end_known_from_a_fold_alone_is_not_replaced(
    pair: Pair, uwf: Uwf, tmp_path: Path, where: str
) -> None:
    tag = ended(pair)
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    carol = Machine(uwf, tmp_path / "carol")
    carol("clone", pair.shared)
    before = carol.refs()
    [fold] = [ref for ref in before if "/folded/" in ref]
    forces(pair, fold, None)
    head = again(pair.shared, pair.git("rev-parse", f"{tag}^{{commit}}").strip(), 1, by_the_boss)
    if where == "threads":
        forces(pair, active(pair), head)
    else:
        text = raw(pair.shared, tag).split("\n")
        forces(pair, archive(pair), written(pair.shared, "\n".join([f"object {head}", *text[1:]]), "tag"))
    assert carol("pull", check=STATUS).error["code"] == "rewritten"
    assert carol("thread", "show", pair.thread).json["status"] == "completed"
    assert pair.git("for-each-ref", active(pair), archive(pair), at=carol.store) in (
        "",
        f"{tag} tag\t{archive(pair)}",
    )


def test_copies_of_the_steps_beside_their_end_are_told(pair: Pair) -> None:
    tag = ended(pair)
    before = pair.bob.refs()
    head = again(pair.shared, pair.git("rev-parse", f"{tag}^{{commit}}").strip(), 1, by_the_boss)
    forces(pair, active(pair), head)
    is_told(pair, pair.bob, active(pair), before)
    pair.bob("remote", "reject-rewrite", pair.thread)
    assert active(pair) not in pair.git("for-each-ref")
    pair.bob("pull")


def test_garbage_in_place_of_an_end_can_be_rejected(pair: Pair) -> None:
    tag = ended(pair)
    text = raw(pair.shared, tag).replace("completed", "finished")
    forces(pair, archive(pair), written(pair.shared, text, "tag"))
    assert "reject-rewrite" in pair.bob("pull", check=7).error["hint"]
    pair.bob("remote", "reject-rewrite", pair.thread)
    assert pair.git("rev-parse", archive(pair)).strip() == tag
    pair.bob("pull")


def test_what_was_accepted_before_is_kept_when_another_rewrite_is_accepted(pair: Pair) -> None:
    first = pair.bob.refs()[active(pair)]
    heads = [first]
    for change in (by_the_boss, a_day_later):
        heads.append(again(pair.shared, heads[-1], 1, change))
        forces(pair, active(pair), heads[-1])
        pair.bob("pull", check=STATUS)
        pair.bob("remote", "accept-rewrite", pair.thread)
    kept = pair.git("for-each-ref", "--format=%(objectname)", "refs/uwf/rewritten", at=pair.bob.store)
    assert set(heads[:2]) <= set(kept.split())


@pytest.mark.parametrize("what", ["directory", "pipe"])
def test_without_the_record_of_what_was_seen_nothing_is_taken(pair: Pair, what: str) -> None:
    seen = pair.bob.store / "uwf" / "seen" / "origin"
    seen.unlink()
    if what == "directory":
        seen.mkdir()
    else:
        os.mkfifo(seen)
    before = pair.bob.refs()
    forces(pair, active(pair), again(pair.shared, before[active(pair)], 1, by_the_boss))
    for _ in range(2):
        assert "seen" in pair.bob("pull", check=7).error["message"]
        assert pair.bob.refs() == before


# Honest histories


def test_a_late_push_beside_an_end_is_no_rewrite(pair: Pair) -> None:
    pair.works(pair.bob, "late")
    pair.works(pair.ada, "last", "done")
    pair.ada("push")
    pair.bob("push", check=4)
    assert "rewritten" not in pair.bob("pull").json
    pair.bob("verify", "--remote", "origin")
    pair.agree()


def test_a_late_push_beside_a_folded_end_is_no_rewrite(pair: Pair) -> None:
    pair.works(pair.bob, "late")
    pair.works(pair.ada, "last", "done")
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    pair.bob("push", check=None)
    assert "rewritten" not in pair.bob("pull").json
    pair.bob("verify", "--remote", "origin")
    pair.agree()


def test_a_race_for_a_step_is_no_rewrite(pair: Pair) -> None:
    pair.works(pair.ada, "by ada")
    pair.works(pair.bob, "by bob")
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "diverged"
    pair.agree()


def test_two_ends_are_no_rewrite_though_one_of_them_is_signed(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.bob("thread", "kill", pair.thread, "--reason", "enough")
    pair.bob("push")
    signs(pair.ada, tmp_path, monkeypatch)
    pair.ada("thread", "kill", pair.thread, "--reason", "too long")
    assert pair.pull(pair.ada)["case"] == "ended-twice"
    pair.agree()


def test_a_server_moved_by_a_copy_is_no_rewrite(pair: Pair, tmp_path: Path) -> None:
    copy = tmp_path / "copy.git"
    subprocess.run(["git", "clone", "-q", "--mirror", pair.shared, copy], check=True)
    pair.git("remote", "set-url", "origin", str(copy), at=pair.bob.store)
    pair.works(pair.bob, "second")
    pair.bob("push")
    pair.bob("pull")


def test_a_thread_that_ended_while_another_went_on_is_no_rewrite(pair: Pair) -> None:
    pair.works(pair.bob, "second")
    pair.bob("push")
    pair.ada("thread", "kill", pair.thread)
    pair.git("push", "-q", "origin", archive(pair), at=pair.ada.store)
    assert "rewritten" not in pair.bob("pull").json
    pair.agree()


@pytest.mark.parametrize("folds", [False, True], ids=["archive", "fold"])
@pytest.mark.sample(1)
def test_an_end_by_who_did_not_know_the_head_is_no_rewrite(pair: Pair, folds: bool) -> None:
    pair.works(pair.bob, "second")
    pair.bob("push")
    pair.works(pair.ada, "last", "done")
    if folds:
        pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    assert pair.git("rev-parse", active(pair)).strip() == pair.bob.refs()[active(pair)]
    pair.bob("verify", "--remote", "origin")
    told = pair.bob("pull").json
    assert "rewritten" not in told
    [fork] = [each["fork"] for each in told["adopted"] if "fork" in each]
    assert (fork["side"], fork["steps"]) == ("ours", 1)
    pair.agree()


@pytest.mark.parametrize("folds", [False, True], ids=["archive", "fold"])
@pytest.mark.parametrize("looks", ["pull", "step"])
@pytest.mark.sample(2)
def test_an_end_that_made_the_head_a_fork_is_no_rewrite(pair: Pair, folds: bool, looks: str) -> None:
    pair.works(pair.bob, "second")
    pair.bob("push")
    pair.works(pair.ada, "last", "done")
    assert pair.pull(pair.ada)["case"] == "ended-here-behind"
    if folds:
        pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    assert active(pair) not in pair.git("for-each-ref")
    if looks == "step":
        done = pair.bob("thread", "step", pair.thread, "--remote", "origin", check=None)
        assert "is completed" in done.error["message"]
    assert "rewritten" not in pair.bob("pull").json
    pair.agree()


def test_a_deleted_thread_that_its_owner_restores_is_no_rewrite(pair: Pair) -> None:
    pair.bob("push", "origin", pair.thread, "--delete")
    pair.ada("pull")
    pair.works(pair.ada, "second")
    pair.ada("push", "origin", pair.thread)
    assert "rewritten" not in pair.bob("pull").json


def test_folding_is_no_rewrite(pair: Pair) -> None:
    ended(pair)
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    pair.bob("pull")
    pair.bob("gc", "--fold-before", "2100-01-01")
    pair.agree()


def test_a_workflow_changed_on_both_sides_is_no_rewrite(pair: Pair) -> None:
    pair.ada.registers(LOOP.replace("Goes on", "Runs"))
    pair.bob.registers(LOOP.replace("Goes on", "Walks"))
    pair.ada("push")
    found = pair.bob("pull").json
    assert "rewritten" not in found and found["adopted"][0]["case"] == "two-histories"


def test_an_invalid_ref_repaired_by_force_is_no_rewrite(pair: Pair) -> None:
    pair.works(pair.ada, "second")
    head = pair.ada.refs()[active(pair)]
    pair.ada("push")
    pair.git("push", "-q", str(pair.shared), f"{head}:refs/heads/keep", at=pair.ada.store)
    empty = subprocess.run(
        ["git", "--git-dir", pair.shared, "mktree"], input="", capture_output=True, text=True, check=True
    ).stdout.strip()
    broken = raw(pair.shared, head).replace(raw(pair.shared, head).split("\n")[0], f"tree {empty}")
    forces(pair, active(pair), written(pair.shared, broken))
    pair.bob("pull", check=7)
    forces(pair, active(pair), head)
    assert pair.pull(pair.bob)["case"] == "behind"
