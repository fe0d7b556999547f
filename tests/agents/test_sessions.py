"""The sessions of agent programs, kept with steps and resumed on a second machine. The programs are doubles, which
keep their sessions as the real ones do; two machines are two homes with a store each, and a bare remote."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import session_programs
from commands import git
from conftest import Uwf
from session_programs import NAMES, session_file
from two_machines import Machine

from uwf_git.ext.agents.cli.session_files import LIMIT
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import parse_step
from uwf_git.format.types import DETAIL, SESSION, STEPNODE, TEXT
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location

LOOP = """\
name: loop
description: A role that comes back.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {status: {enum: [again, done]}, heard: {type: integer}, word: {type: string}}
      required: [status, heard, word]
graph:
  $START: {_: worker}
  worker: {again: worker, done: $END}
"""
TASK = "The word is xylophone."
SECRET = "b7Qm2zX9wL4tR8vK1nY6"


class Desk(Machine):
    """A machine with a home and a work folder of its own, and an agent program."""

    def __init__(self, uwf: Uwf, folder: Path, name: str, program: str, keep: bool = True) -> None:
        super().__init__(uwf, folder / name / "store")
        self.program, self.home, self.work = program, folder / name / "home", folder / name / "work"
        for each in (self.home, self.work):
            each.mkdir(parents=True)
        self("init")
        if keep:
            (self.root / "config.yaml").write_text("sessions: keep\n")

    @property
    def environment(self) -> dict[str, str]:
        programs = self.home.parents[1] / "programs"
        path = os.pathsep.join((str(programs), os.environ["PATH"]))
        return {**super().environment, "HOME": str(self.home), "PATH": path}

    def step_of(self, thread: str, check: int = 0, **env: str) -> dict[str, Any]:
        """A step's output; its detail is under `detail`, and the lines on standard error under `err`."""
        agent = f"uwf-{NAMES[self.program]}"
        done = self("thread", "step", thread, "--agent", agent, "--cwd", self.work, check=check, env=env)
        if check:
            return {"err": done.err}
        row = self("thread", "steps", thread, "--json").json[-1]
        detail = self("thread", "step-details", row["step"], "--json").json["detail"]["value"]
        return {**row["output"], "detail": detail, "err": done.err}

    def session(self, step: dict[str, Any]) -> Path:
        found = session_file(self.program, self.home, self.work, step["detail"]["session"])
        assert found is not None
        return found

    def kept(self, step: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """A step's Session, and the text of its one file."""
        session = self("cas", "get", step["detail"]["kept"], "--json").json["payload"]
        (file,) = session["files"]
        return session, "".join(self("cas", "get", part, "--json").json["payload"] for part in file["parts"])


class Pair:
    """Two machines with the same program, and a remote between them."""

    def __init__(self, uwf: Uwf, folder: Path, program: str, there_keeps: bool = True) -> None:
        session_programs.install(folder / "programs")
        git("init", "-q", "--bare", folder / "remote.git")
        self.here = Desk(uwf, folder, "here", program)
        self.there = Desk(uwf, folder, "there", program, there_keeps)
        for desk in (self.here, self.there):
            desk("remote", "add", "origin", folder / "remote.git")
        self.here.registers(LOOP)
        self.thread = self.here.starts(TASK, "loop")

    def carry(self, one: Desk, other: Desk) -> None:
        """Bring the thread from one machine to the other."""
        one("push")
        other("pull")


def forged(desk: Desk, root: Path, thread: str, change: Callable[[Instance, dict[str, Any]], Any]) -> str:
    """A thread whose first step is that of another, but for its Session, changed by somebody who can push."""
    other = desk.starts(TASK, "loop")
    instance = Instance(Location(root, desk.store), {})
    store, threads = instance.store, instance.threads
    step = parse_step(store.get(threads.head(ThreadId(thread)).node).payload)
    detail = store.detail(step.detail)
    assert detail is not None and detail.kept is not None
    kept = change(instance, json.loads(json.dumps(store.get(detail.kept).payload)))
    told = detail._replace(kept=kept if isinstance(kept, str) else store.put(SESSION, kept))
    made = step._replace(detail=store.put(DETAIL, told.payload()))
    threads.append(
        threads.head(ThreadId(other)),
        store.put(STEPNODE, made.payload()),
        set(),
        (),
        told.extraction,
        "worker",
    )
    return other


def told(step: dict[str, Any]) -> list[str]:
    """What a step's detail notes of its session."""
    return [note for note in step["detail"].get("notes", []) if note.startswith("session ")]


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path) -> Pair:
    return Pair(uwf, tmp_path, "claude")


@pytest.mark.parametrize("program", NAMES)
def test_a_session_goes_on_elsewhere_and_comes_back(program: str, uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path, program)
    here, there = pair.here, pair.there
    first = here.step_of(pair.thread)
    assert (first["heard"], first["word"]) == (1, "xylophone")
    pair.carry(here, there)
    second = there.step_of(pair.thread)
    assert (second["heard"], second["word"]) == (2, "xylophone")
    assert second["detail"]["session"] == first["detail"]["session"]
    assert told(second) == []
    text = there.session(second).read_text()
    assert str(there.work) in text and str(here.work) not in text
    pair.carry(there, here)
    third = here.step_of(pair.thread)
    assert third["heard"] == 3 and told(third) == []
    assert str(there.work) not in here.session(third).read_text()
    assert here.step_of(pair.thread)["heard"] == 4
    for desk in (here, there):
        desk.verifies()


def test_a_session_that_names_the_folder_of_the_other_machine_goes_on(uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path, "claude")
    here, there = pair.here, pair.there
    pair.thread = here.starts(f"{TASK} Compare with {there.work}.", "loop")
    here.step_of(pair.thread)
    pair.carry(here, there)
    there.step_of(pair.thread)
    pair.carry(there, here)
    third = here.step_of(pair.thread)
    assert third["heard"] == 3 and told(third) == []


def test_nothing_is_kept_unless_the_user_says_so(uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path, "claude")
    pair.here("config", "unset", "sessions")
    for folder in (pair.here.work, pair.here.work / ".uwf"):
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text("sessions: keep\n")  # a project's word counts for nothing
    first = pair.here.step_of(pair.thread)
    assert "kept" not in first["detail"] and told(first) == []
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread)
    assert (second["heard"], second["word"]) == (1, "xylophone")
    assert "could not be resumed" in told(second)[0]


def test_nothing_is_restored_on_a_machine_that_keeps_nothing(uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path, "claude", there_keeps=False)
    first = pair.here.step_of(pair.thread)
    assert first["detail"]["kept"]
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread)
    assert second["heard"] == 1 and "kept" not in second["detail"]
    assert second["detail"]["session"] != first["detail"]["session"]


def says(text: str, **more: str) -> str:
    """A line of a session, in which the program's model says something."""
    block = {"type": "thinking" if more else "text", "text": text, **more}
    return json.dumps({"type": "assistant", "message": {"role": "assistant", "content": [block]}})


def test_a_secret_is_taken_out_before_it_is_hashed_and_the_session_goes_on(pair: Pair) -> None:
    (pair.here.root / ".env").write_text(f"DEPLOY_TOKEN={SECRET}\n")
    first = pair.here.step_of(pair.thread, DOUBLE_LINE=says(f"It is {SECRET}."))
    assert SECRET in pair.here.session(first).read_text()
    _, text = pair.here.kept(first)
    assert SECRET not in text and "It is [redacted:DEPLOY_TOKEN]." in text
    assert {"where": "kept session", "count": 1} in first["detail"]["redactions"]
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread)
    assert (second["heard"], told(second)) == (2, [])
    pair.carry(pair.there, pair.here)
    third = pair.here.step_of(pair.thread, DOUBLE_LINE=says(f"Again {SECRET}."))
    assert (third["heard"], told(third)) == (3, [])
    blobs = git("--git-dir", pair.here.store, "cat-file", "--batch-all-objects", "--batch")
    assert SECRET not in blobs and "[redacted:DEPLOY_TOKEN]" in blobs


def test_a_secret_in_a_signed_part_keeps_the_session_here_and_no_stale_one_is_resumed(pair: Pair) -> None:
    signed = says(f"It is {SECRET}.", signature="c2lnbmF0dXJl")
    for desk in (pair.here, pair.there):
        (desk.root / ".env").write_text(f"DEPLOY_TOKEN={SECRET}\n")
    first = pair.here.step_of(pair.thread, DOUBLE_LINE=says("It is well.", signature="c2lnbmF0dXJl"))
    assert first["detail"]["kept"]
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread, DOUBLE_LINE=signed)
    assert second["heard"] == 2 and "kept" not in second["detail"]
    (note,) = told(second)
    assert note.endswith("is not kept: a secret is in a part that is signed, and can't be taken out")
    assert pair.there.step_of(pair.thread)["heard"] == 3
    pair.carry(pair.there, pair.here)
    last = pair.here.step_of(pair.thread)
    assert (last["heard"], last["word"]) == (1, "xylophone")
    assert "went on elsewhere; begun anew" in told(last)[0]


def test_a_failed_attempt_is_resumed_elsewhere_in_its_session(pair: Pair) -> None:
    pair.here.step_of(pair.thread, check=6, DOUBLE_EXIT="1")
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread)
    assert (second["heard"], told(second)) == (2, [])


def test_a_fork_has_a_session_of_its_own_on_every_machine(pair: Pair) -> None:
    pair.here.step_of(pair.thread)
    fork = str(pair.here("thread", "fork", pair.thread).json["thread"])
    pair.carry(pair.here, pair.there)
    assert pair.there.step_of(pair.thread)["heard"] == 2
    assert pair.there.step_of(fork)["heard"] == 1


def test_a_failed_step_does_not_make_a_session_of_this_machine_strange(pair: Pair) -> None:
    first = pair.here.step_of(pair.thread)
    (pair.here.home.parents[1] / "programs/claude").rename(pair.here.home / "claude")
    assert "is not installed" in pair.here.step_of(pair.thread, check=6)["err"]
    (pair.here.home / "claude").rename(pair.here.home.parents[1] / "programs/claude")
    second = pair.here.step_of(pair.thread)
    assert (second["heard"], told(second)) == (2, [])
    assert second["detail"]["session"] == first["detail"]["session"]


def test_parts_are_small_and_those_of_a_growing_session_stay(pair: Pair) -> None:
    line = pair.here.home / "line"
    line.write_text(says("🙂" * 300_000))
    first = pair.here.step_of(pair.thread, DOUBLE_LINE=f"@{line}")
    second = pair.here.step_of(pair.thread)
    before, after = (pair.here.kept(each)[0]["files"][0]["parts"] for each in (first, second))
    assert len(before) > 10 and after[: len(before) - 1] == before[:-1]
    rows = git("--git-dir", pair.here.store, "cat-file", "--batch-all-objects", "--batch-check=%(objectsize)")
    assert max(map(int, rows.split())) < 1_000_000
    pair.carry(pair.here, pair.there)
    assert pair.there.step_of(pair.thread)["heard"] == 3


def big(path: Path, elsewhere: Path) -> None:
    with path.open("a") as file:
        file.write(f"{json.dumps({'text': 'x' * (33 << 20)})}\n")


def linked(path: Path, elsewhere: Path) -> None:
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def twice(path: Path, elsewhere: Path) -> None:
    path.rename(elsewhere)
    path.hardlink_to(elsewhere)


def foreign(path: Path, elsewhere: Path) -> None:
    with path.open("a") as file:
        file.write('"private"\n')


def binary(path: Path, elsewhere: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"a":"\xff"}\n')


def deep(path: Path, elsewhere: Path) -> None:
    with path.open("a") as file:
        file.write(f'{{"a":{"[" * 20_000}{"]" * 20_000}}}\n')


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (deep, "a line is nested too deeply"),
        (big, "it has more than 32 MB"),
        (linked, "is a link"),
        (twice, "is not a plain file of its own"),
        (foreign, "of its file is not a JSON object"),
        (binary, "its file is not UTF-8"),
    ],
)
def test_what_cannot_be_kept_is_noted_and_the_step_counts(damage: Any, why: str, pair: Pair) -> None:
    first = pair.here.step_of(pair.thread)
    path = pair.here.session(first)
    damage(path, pair.here.home / "elsewhere")
    # The program itself does not mind.
    strange = {"DOUBLE_BLIND": "1"}
    second = pair.here.step_of(pair.thread, **strange)
    assert "kept" not in second["detail"]
    (note,) = told(second)
    assert note.startswith(f"session {first['detail']['session']} of claude is not kept: ") and note.endswith(
        why
    )


def test_a_session_without_a_file_is_noted(pair: Pair) -> None:
    first = pair.here.step_of(pair.thread, DOUBLE_FORGETS="1")
    assert told(first)[0].endswith("is not kept: claude has no file of it for this folder")


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", NAMES)
def test_a_program_that_cannot_read_what_is_restored_is_told_all_again(
    program: str, uwf: Uwf, tmp_path: Path
) -> None:
    pair = Pair(uwf, tmp_path, program)
    first = pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread, DOUBLE_REFUSES="1")
    assert (second["heard"], second["word"]) == (1, "xylophone")
    assert second["detail"]["session"] != first["detail"]["session"] and second["detail"]["kept"]
    assert "could not be resumed" in told(second)[0]


def test_a_program_that_is_not_there_is_named_and_the_session_waits(pair: Pair) -> None:
    pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    programs = pair.there.home.parents[1] / "programs"
    (programs / "claude").rename(programs / "away")
    assert "claude is not installed" in pair.there.step_of(pair.thread, check=6)["err"]
    (programs / "away").rename(programs / "claude")
    assert pair.there.step_of(pair.thread)["heard"] == 2


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", NAMES)
def test_a_session_that_went_on_differently_here_is_never_written_over(
    program: str, uwf: Uwf, tmp_path: Path
) -> None:
    pair = Pair(uwf, tmp_path, program)
    pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread)
    pair.carry(pair.there, pair.here)
    path = pair.here.session(second)
    text = path.read_text()
    path.write_text(text.replace("xylophone", "bassoon"))
    third = pair.here.step_of(pair.thread)
    assert path.read_text() == text.replace("xylophone", "bassoon")
    assert (third["heard"], third["word"]) == (1, "xylophone")
    assert "could not be restored: it went on differently on this machine" in told(third)[0]


def test_one_that_is_newer_here_is_resumed_as_it_is(pair: Pair) -> None:
    pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    second = pair.there.step_of(pair.thread)
    path = pair.there.session(second)
    with path.open("a") as file:  # its user went on by hand
        file.write(says("More.") + "\n")
    for note in (pair.there.store / "uwf/sessions").iterdir():
        note.unlink()
    assert pair.there.step_of(pair.thread)["heard"] == 3
    assert "More." in path.read_text()


def at(path: str) -> Callable[[Instance, dict[str, Any]], Any]:
    """A Session with its file at another path; SESSION and SLUG stand for its own."""

    def change(_: Instance, session: dict[str, Any]) -> Any:
        (file,) = session["files"]
        return {**session, "files": [{**file, "path": path.replace("SESSION", session["session"])}]}

    return change


def of(**fields: Any) -> Callable[[Instance, dict[str, Any]], Any]:
    return lambda _, session: {**session, **fields}


def of_a_node_that_is_no_text(instance: Instance, session: dict[str, Any]) -> Any:
    (file,) = session["files"]
    return {**session, "files": [{**file, "parts": [SESSION]}]}


def multiplied(instance: Instance, session: dict[str, Any]) -> Any:
    (file,) = session["files"]
    part = instance.store.put(TEXT, "x" * 100_000)
    return {**session, "files": [{**file, "parts": [part] * (LIMIT // 100_000 + 2)}]}


HOSTILE = {
    "above": (at("../../../evil.jsonl"), "files that are not claude's"),
    "absolute": (at("/tmp/evil.jsonl"), "files that are not claude's"),
    "no files": (of(files=[]), "files that are not claude's"),
    "below": (at("other/SESSION.jsonl"), "files that are not claude's"),
    "another id": (of(session="11111111-2222-3333-4444-555555555555"), "is of another session"),
    "another program": (of(program="codex"), "is of another session"),
    "a relative folder": (of(folder="work"), "names no folder"),
    "the root": (of(folder="/"), "names no folder"),
    "another name": (at("settings.json"), "files that are not claude's"),
    "no text": (of_a_node_that_is_no_text, "that is no text"),
    "another session": (at("11111111-2222-3333-4444-555555555555.jsonl"), "files that are not claude's"),
    "a bomb": (multiplied, "it has more than 32 MB"),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_session_of_somebody_else_writes_nothing_that_is_not_the_programs(
    name: str, pair: Pair, tmp_path: Path
) -> None:
    change, why = HOSTILE[name]
    pair.here.step_of(pair.thread)
    thread = forged(pair.here, pair.here.root, pair.thread, change)
    pair.carry(pair.here, pair.there)
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(pair.there.root)}
    second = pair.there.step_of(thread)
    assert (second["heard"], second["word"]) == (1, "xylophone")
    assert "could not be restored: " in told(second)[0] and why in told(second)[0]
    made = {path for path in tmp_path.rglob("*") if not path.is_relative_to(pair.there.root)} - before
    assert [path for path in made if path.is_file()] == [pair.there.session(second)]


def test_a_detail_that_names_no_session_is_found_by_verify(pair: Pair) -> None:
    pair.here.step_of(pair.thread)
    forged(pair.here, pair.here.root, pair.thread, lambda instance, _: instance.store.put(TEXT, "no session"))
    found = pair.here("verify", "--all", check=None)
    assert found.code != 0 and "as a session, which is none" in found.out


def test_a_link_in_the_place_of_a_session_is_not_followed(pair: Pair) -> None:
    first = pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    path = pair.there.home / ".claude/projects"
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(pair.there.work))
    aim = pair.there.home / "aim"
    (path / slug).mkdir(parents=True)
    (path / slug / f"{first['detail']['session']}.jsonl").symlink_to(aim)
    second = pair.there.step_of(pair.thread)
    assert second["heard"] == 1 and "is a link" in told(second)[0]
    assert not aim.exists()


def test_a_folder_of_dates_that_leads_elsewhere_is_not_written_to(uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path, "codex")
    first = pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    aim = pair.there.home / "aim"
    aim.mkdir()
    (pair.there.home / ".codex/sessions").mkdir(parents=True)
    (pair.there.home / ".codex/sessions/2026").symlink_to(aim)
    second = pair.there.step_of(pair.thread)
    assert second["heard"] == 1 and "could not be restored" in told(second)[0]
    assert list(aim.rglob(f"*{first['detail']['session']}*")) == []


def test_a_session_stays_its_users_alone(pair: Pair) -> None:
    pair.here.step_of(pair.thread)
    pair.carry(pair.here, pair.there)
    path = pair.there.session(pair.there.step_of(pair.thread))
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
