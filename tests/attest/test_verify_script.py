"""An auditor needs no uwf: a script of 420 lines finds each word that is not in the thread's commits."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from approvers import BUILDS, ForgedApprovals, at_gate, at_gate_after_branches, release
from cli_samples import ONE, scripted, write
from commands import git
from conftest import Uwf
from evidence import SCRIPT, Answers, Evidence, altered, check_file, check_here, cloned, configure, places
from forged_fan_outs import Forge
from signers import Signer, SigningMachine, trust_file

from uwf_git.engine.fan_out import join as engines_join
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate


@pytest.fixture
def report(uwf: Uwf, evidence: Evidence) -> dict[str, Any]:
    uwf("export", evidence.thread, "--audit-json", "report.json")
    found: dict[str, Any] = json.loads(Path("report.json").read_text())
    return found


def checked(
    evidence: Evidence, value: Any, *options: str | Path, answers: Answers | None = None
) -> tuple[int, str]:
    """The script's exit status, and what it says, for a report; `answers` are those of `check_here`."""
    file = evidence.folder / "checked.json"
    file.write_text(json.dumps(value))
    options = ("--signers", evidence.signers, "--code", evidence.project, *options)
    return check_here(file, evidence.clone, *options, answers=answers)


def test_the_script_has_420_lines_and_needs_nothing_but_python(evidence: Evidence) -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) < 420 and max(map(len, text.splitlines())) <= 120
    needed = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert needed <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(ast.parse(text)))


def test_a_true_report_is_as_said(evidence: Evidence, report: dict[str, Any]) -> None:
    said = f"{report['record']['head']}: as said, signed by ada@example.invalid\n"
    assert checked(evidence, report) == (0, said)
    done = check_file(
        Path("report.json"), evidence.clone, "--signers", evidence.signers, "--code", evidence.project
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_what_cannot_be_read_is_told_in_a_line(evidence: Evidence, report: dict[str, Any]) -> None:
    unsigned = {**report, "signature": None}
    assert "no known key signed it" in checked(evidence, unsigned)[1]
    for value in ({}, [], {**report, "record": None}, {**report, "signature": "of nothing"}):
        status, text = checked(evidence, value)
        assert status == 1 and "Traceback" not in text and len(text.splitlines()) < 9


def test_a_true_attestation_is_as_said(uwf: Uwf, evidence: Evidence) -> None:
    made = uwf("attest", evidence.thread, "-o", "thread.json").json
    (evidence.folder / "key.pem").write_text(made["publicKey"])
    status, said = checked(
        evidence, json.loads(Path("thread.json").read_text()), "--key", evidence.folder / "key.pem"
    )
    assert (status, said.partition(": ")[2]) == (0, f"as said, signed by {evidence.folder / 'key.pem'}\n")


# What no commit says: the signature is all that there is for it.
BY_SIGNATURE = ("verification", "unknown")


def kinds_of_fields(report: dict[str, Any]) -> dict[str, tuple[str | int, ...]]:
    """A place of each field, whatever step it is of."""
    found: dict[str, tuple[str | int, ...]] = {}
    for path in places(report):
        found.setdefault(".".join(str(key) for key in path if isinstance(key, str)), path)
    return found


def is_in_commits(path: tuple[str | int, ...]) -> bool:
    return path[0] not in (*BY_SIGNATURE, "signature") and path[-1] != "rebuilt"


def test_a_field_of_each_kind_that_is_altered_is_found_without_the_signature(
    evidence: Evidence, report: dict[str, Any]
) -> None:
    unsigned, answers = {**report, "signature": None}, Answers()
    assert checked(evidence, unsigned, "--accept-unproved", answers=answers)[0] == 0
    for name, path in kinds_of_fields(unsigned).items():
        if is_in_commits(path):
            forged = altered(unsigned, path)
            status, said = checked(evidence, forged, "--accept-unproved", answers=answers)
            assert status == 1, f"{name}: {said}"


def test_what_no_commit_says_is_under_the_signature(evidence: Evidence, report: dict[str, Any]) -> None:
    fields = {name: path for name, path in kinds_of_fields(report).items() if not is_in_commits(path)}
    assert {name.partition(".")[0] for name in fields} == {"verification", "unknown", "signature", "record"}
    answers = Answers()
    for name, path in fields.items():
        status, said = checked(evidence, altered(report, path), answers=answers)
        assert status == 1 and "not proved: what FILE says of verification" in said, f"{name}: {said}"


@pytest.mark.extended
def test_each_field_that_is_altered_is_found(evidence: Evidence, report: dict[str, Any]) -> None:
    answers = Answers()
    for path in places(report):
        status, said = checked(evidence, altered(report, path), answers=answers)
        assert status == 1, f"{path}: {said}"


def _two(forged: ForgedApprovals, *decisions: str) -> list[Hash]:
    names = ("ann", "bob")
    said = [forged.honest(name, decision) for name, decision in zip(names, decisions, strict=False)]
    return [forged.node_of(forged.commit(each)) for each in said]


def _taken_back(forged: ForgedApprovals) -> list[Hash]:
    nodes = _two(forged, "ship", "ship")
    forged.revoke(nodes[0], "ann")
    return nodes


def _by_a_stranger(forged: ForgedApprovals) -> list[Hash]:
    return [*_two(forged, "ship"), forged.node_of(forged.commit(forged.honest("eve")))]


def _committed_by_another(forged: ForgedApprovals) -> list[Hash]:
    return [*_two(forged, "ship"), forged.node_of(forged.commit(forged.honest("bob"), committer="eve"))]


DECISIONS: dict[str, tuple[Callable[[ForgedApprovals], list[Hash]], str]] = {
    "honest": (lambda forged: _two(forged, "ship", "ship"), ""),
    "otherwise": (lambda forged: _two(forged, "stop", "stop"), "and the step says"),
    "one": (lambda forged: _two(forged, "ship"), "needs 2 approvals, and has 1"),
    "taken-back": (_taken_back, "took approval"),
    "stranger": (_by_a_stranger, "eve <eve@example.invalid> is not known to be one of"),
    "another-committer": (_committed_by_another, "is not of the person and time that it names"),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_a_decision_that_its_approvals_do_not_carry_is_found(uwf: Uwf, hermetic: Path, case: str) -> None:
    thread = at_gate(uwf)
    gives, words = DECISIONS[case]
    forged = ForgedApprovals(Instance(locate(None, os.environ, Path.cwd())), thread)
    forged.step(gives(forged), forged.honest("ann").output)
    uwf("export", thread, "--audit-json", "report.json", check=7 if words else 0)
    clone = cloned(forged.instance.location.git_dir, hermetic / "clone")
    status, said = check_here(Path("report.json"), clone, "--accept-unproved")
    assert (status == 1 and words in said) if words else status == 0, said
    assert "has no good signature by --signers" in said  # and is not proved


def test_whoever_made_a_part_approves_nothing_for_the_script(uwf: Uwf, hermetic: Path) -> None:
    thread = at_gate_after_branches(uwf, "bob", "eve")
    forged = ForgedApprovals(Instance(locate(None, os.environ, Path.cwd())), thread)
    said = forged.honest("bob")
    forged.step([forged.node_of(forged.commit(said))], said.output)
    uwf("export", thread, "--audit-json", "report.json", check=7)
    clone = cloned(forged.instance.location.git_dir, hermetic / "clone")
    done = check_file(Path("report.json"), clone, "--accept-unproved")
    assert done.returncode == 1 and "bob <bob@example.invalid> made a part of what is judged" in done.stdout


def without_its_findings(file: Path) -> Path:
    """The report with no word of what verification found, so that the script has to find it."""
    report = json.loads(file.read_text())
    report["verification"]["findings"], report["signature"] = [], None
    file.write_text(json.dumps(report))
    return file


def _joined_with(change: Callable[[Forge, tuple[Oid, ...]], tuple[Oid, ...]]) -> Callable[[Forge], ThreadId]:
    def forges(forge: Forge) -> ThreadId:
        thread, _ = forge.ended()
        tips = engines_join(forge.instance, forge.instance.threads.position(forge.head(thread)))[2]
        forge.join(thread, merged=change(forge, tips))
        return thread

    return forges


def _joined_as(**values: Any) -> Callable[[Forge], ThreadId]:
    def forges(forge: Forge) -> ThreadId:
        thread, _ = forge.ended()
        forge.join(thread, lambda payload: payload["branches"][1].update(values))
        return thread

    return forges


JOINS: dict[str, tuple[Callable[[Forge], ThreadId], str]] = {
    "honest": (_joined_with(lambda _, tips: tips), ""),
    "another-order": (_joined_with(lambda _, tips: tips[::-1]), "which is not its branch"),
    "a-branch-less": (_joined_with(lambda _, tips: tips[:1]), "says that 2 branches ended, and joins 1"),
    "another-thread": (
        _joined_with(lambda forge, tips: (tips[0], forge.head(forge.start()).commit)),
        "which is not its branch 1",
    ),
    "another-fork": (
        _joined_with(lambda forge, tips: (forge.head(forge.ended("need: 2")[1][0]).commit, tips[1])),
        "which is not its branch 0",
    ),
    "another-output": (_joined_as(output={"text": "broken"}), "says otherwise of thread"),
    "another-step": (_joined_as(step="0" * 13), "says otherwise of thread"),
}


@pytest.mark.parametrize("case", JOINS)
def test_branches_of_a_join_are_opened_by_the_script(
    uwf: Uwf, instance: Instance, tmp_path: Path, case: str
) -> None:
    forges, words = JOINS[case]
    thread = forges(Forge(instance))
    uwf("export", thread, "--audit-json", "report.json", check=7 if words else 0)
    clone = cloned(instance.location.git_dir, tmp_path / "clone")
    status, said = check_here(without_its_findings(Path("report.json")), clone, "--accept-unproved")
    assert (status == 1) is bool(words) and words in said, said


def signed_by(evidence_of: SigningMachine, thread: str, clone: Path, *options: str | Path) -> tuple[int, str]:
    """What the script says of a thread of a machine, with the findings of that machine's uwf taken out."""
    evidence_of("export", thread, "--audit-json", "report.json", "--force", check=None)
    if clone.exists():
        git("-C", clone, "fetch", "-q", "--prune", evidence_of.store, "+refs/uwf/*:refs/uwf/*")
    else:
        cloned(evidence_of.store, clone)
    return check_here(without_its_findings(Path("report.json")), clone, *options)


def test_the_rules_of_the_pinned_policy_are_applied(uwf: Uwf, hermetic: Path) -> None:
    people = {name: Signer(hermetic, name) for name in ("ann", "bob", "eve")}
    ann = SigningMachine(uwf, hermetic / "ann", people["ann"])
    ann("init")
    thread = ann.starts("v1", ann.registers(release("[ann, bob]", quorum=1)))
    ann("thread", "step", thread, "--agent", BUILDS)
    people["ann"].signs(commits=False)
    ann("thread", "answer", thread, "-f", "decision=ship")
    people["ann"].signs()
    signed = ann.starts("v2", "release")
    ann("thread", "step", signed, "--agent", BUILDS)
    ann("thread", "answer", signed, "-f", "decision=ship")
    signers = hermetic / "signers"
    signers.write_text("".join(f"{name} {each.public}\n" for name, each in people.items()))

    def said(thread: str, rules: str, more: str = "", names: str = "ann bob") -> tuple[int, str]:
        whom = {name: people[name] for name in names.split()}
        (hermetic / "trust.yaml").write_text(trust_file(whom, rules=rules, more=more))
        pin = str(ann("trust", "set", hermetic / "trust.yaml").json["commit"])
        options = ("--signers", signers, "--policy", pin, "--accept-unproved")
        return signed_by(ann, thread, hermetic / "clone", *options)

    whole, of_answers = (
        "[{threads: '*', require: signed}]",
        "[{threads: '*', of: [answers], signed-by: [bob]}]",
    )
    for rules, words in (
        (whole, ""),
        (of_answers, "is signed by ann: the trust policy wants * signed by bob"),
        ("[{threads: 'other*', signed-by: [bob]}]", ""),
        ("[{threads: [other, rel*], of: [starts], signed-by: [bob]}]", "the start is signed by ann"),
        ("[{threads: '*', of: [ends], signed-by: [bob]}]", "the end is signed by ann"),
        ("[{workflows: '*', signed-by: [bob]}]", "its workflow is signed by ann"),
    ):
        status, text = said(signed, rules)
        assert (status == 1) is bool(words) and words in text, (rules, text)
    status, text = said(thread, "[]")
    assert status == 1 and "has a key in the trust policy, and did not sign" in text
    ends = [ann.refs()[f"refs/uwf/{kind}/{thread}"] for kind in ("archive", "approvals")]
    status, text = said(thread, whole, f"accepted: [{', '.join(ends)}]\n")
    assert status == 0, text
    unpinned, text = signed_by(ann, signed, hermetic / "clone", "--signers", signers)
    assert unpinned == 1 and "of which --policy names no version" in text
    git("-C", hermetic / "clone", "update-ref", "-d", "refs/uwf/trust/policy")
    done = check_file(
        Path("report.json"), hermetic / "clone", "--policy", str(ann.refs()["refs/uwf/trust/policy"])
    )
    assert done.returncode == 1 and "does not stand on" in done.stderr


def test_groups_of_the_pinned_policy_say_who_may_approve(uwf: Uwf, hermetic: Path) -> None:
    people = {name: Signer(hermetic, name) for name in ("ann", "bob")}
    ann, bob = (SigningMachine(uwf, hermetic / name, people[name]) for name in people)
    ann("init")
    groups = "groups: {team: [bob], all: [ann, bob]}\n"
    for more in (groups, groups + "allow: [deletions]\n"):
        (hermetic / "trust.yaml").write_text(trust_file(people, more=more))
        ann("trust", "set", hermetic / "trust.yaml")
    hub = hermetic / "hub.git"
    git("init", "-q", "--bare", hub)
    ann("remote", "add", "origin", hub)
    thread = ann.starts("v1", ann.registers(release("[team]", quorum=1)))
    ann("thread", "step", thread, "--agent", BUILDS)
    ann("push")
    bob("clone", hub)
    bob("thread", "answer", thread, "-f", "decision=ship")
    bob("export", thread, "--audit-json", "report.json")
    clone = cloned(bob.store, hermetic / "clone")
    signers = hermetic / "signers"
    signers.write_text("".join(f"{name} {each.public}\n" for name, each in people.items()))
    newest = git("-C", clone, "rev-parse", "refs/uwf/trust/policy").strip()
    first = git("-C", clone, "rev-parse", "refs/uwf/trust/policy~1").strip()
    answers = Answers()
    for options, status, words in (
        ((), 1, "is not known to be one of team"),
        (("--policy", newest), 0, "as said"),
        (("--policy", first), 0, "as said"),
        (("--policy", "0" * 40), 1, "does not stand on"),
    ):
        found, said = check_here(Path("report.json"), clone, "--signers", signers, *options, answers=answers)
        assert found == status and words in said, (options, said)


def test_what_is_left_out_or_added_is_found(evidence: Evidence, report: dict[str, Any]) -> None:
    unsigned, answers = {**report, "signature": None}, Answers()
    record = report["record"]
    for name, value in (
        ("no end", {**record, "end": None}),
        ("no approval", {**record, "approvals": []}),
        ("a step less", {**record, "steps": record["steps"][:-1]}),
        ("a step twice", {**record, "steps": [*record["steps"], record["steps"][-1]]}),
        ("a field more", {**record, "more": 1}),
        ("not signed", {**record, "start": {**record["start"], "signature": None}}),
        ("an earlier head", {**record, "head": record["steps"][0]["commit"]}),
    ):
        forged = {**unsigned, "record": value}
        status, said = checked(evidence, forged, "--accept-unproved", answers=answers)
        assert status == 1 and "wrong: " in said, f"{name}: {said}"


def test_a_name_that_is_there_twice_is_refused_and_one_more_is_found(
    evidence: Evidence, report: dict[str, Any]
) -> None:
    """Readers differ in which of two they show."""
    text = json.dumps(report)
    twice = text.replace('{"decision": "merge"}', '{"decision": "change", "decision": "merge"}')
    assert twice != text
    file = evidence.folder / "twice.json"
    file.write_text(twice)
    done = check_file(file, evidence.clone, "--signers", evidence.signers, "--code", evidence.project)
    assert (done.returncode, done.stderr) == (1, "FILE has a name twice\n")
    status, said = checked(
        evidence, {**report, "signature": None, "note": "approved by all"}, "--accept-unproved"
    )
    assert status == 1 and "wrong: note is said to be" in said


def test_a_field_of_an_output_is_compared_whatever_its_name(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    """The digests of rebuilt prompts are not compared, and an agent may call a field of its own so."""
    text = ONE.replace("n: {type: integer}", "rebuilt: {type: boolean}").replace("[n]", "[rebuilt]")
    thread = str(uwf("thread", "start", write("one.yaml", text), "-p", "x").json["thread"])
    uwf("thread", "step", thread, "--agent", scripted("- {role: r, output: {rebuilt: true}}\n"))
    uwf("export", thread, "--audit-json", "report.json")
    clone = cloned(root / "store.git", tmp_path / "clone")
    assert check_file(Path("report.json"), clone, "--accept-unproved").returncode == 0
    forged = Path("report.json").read_text().replace('"rebuilt": true', '"rebuilt": false')
    Path("report.json").write_text(forged)
    done = check_file(Path("report.json"), clone, "--accept-unproved")
    assert done.returncode == 1 and "texts.steps[1].output.rebuilt is said to be false" in done.stdout


def objects(clone: Path, head: str) -> list[str]:
    return [line.split()[0] for line in git("-C", clone, "rev-list", "--objects", head).splitlines()]


def broken(file: Path) -> bytes:
    """Alter the last byte of a loose object; what it was."""
    before = file.read_bytes()
    content = bytearray(zlib.decompress(before))
    content[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(zlib.compress(bytes(content)))
    return before


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.extended)])
def test_each_object_that_is_altered_is_found(
    evidence: Evidence, report: dict[str, Any], stride: int
) -> None:
    names = objects(evidence.clone, f"refs/uwf/archive/{evidence.thread}")
    assert len(names) > 30
    for name in names[::stride]:
        file = evidence.clone / ".git/objects" / name[:2] / name[2:]
        before = broken(file)
        assert checked(evidence, report)[0] == 1, git(
            "-C", evidence.clone, "cat-file", "-t", name, check=False
        )
        file.write_bytes(before)
    assert checked(evidence, report)[0] == 0


def test_code_that_is_not_in_the_clone_is_not_proved(evidence: Evidence, report: dict[str, Any]) -> None:
    file = evidence.folder / "report.json"
    file.write_text(json.dumps(report))
    done = check_file(file, evidence.clone, "--signers", evidence.signers)
    assert done.returncode == 1 and done.stdout.startswith("not proved: step 1 left code ")


def test_a_report_of_a_thread_that_went_on_otherwise_is_found(
    evidence: Evidence, report: dict[str, Any]
) -> None:
    """Somebody pushed another end to the place that the auditor clones."""
    first = report["record"]["steps"][0]["commit"]
    git("-C", evidence.clone, "update-ref", "-d", f"refs/uwf/archive/{evidence.thread}")
    git("-C", evidence.clone, "update-ref", f"refs/uwf/threads/{evidence.thread}", first)
    status, said = checked(evidence, report)
    assert status == 1 and f"not proved: no ref of thread {evidence.thread} is at " in said


def test_a_clone_of_a_published_branch_will_do_with_the_end(
    uwf: Uwf, evidence: Evidence, report: dict[str, Any]
) -> None:
    server, file = evidence.folder / "server.git", evidence.folder / "report.json"
    git("init", "-q", "--bare", server)
    uwf("remote", "add", "origin", server)
    uwf("publish", "thread", evidence.thread)
    branch = evidence.folder / "branch"
    git("clone", "-q", "--branch", f"uwf/threads/{evidence.thread}", server, branch)
    file.write_text(json.dumps(report))
    options = ("--signers", evidence.signers, "--code", evidence.project)
    done = check_file(file, branch, *options)
    assert done.returncode == 1 and done.stderr.startswith("tag ") and "damaged" in done.stderr
    uwf("push")
    git("-C", branch, "fetch", "-q", "origin", f"refs/uwf/archive/{evidence.thread}")
    done = check_file(file, branch, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_with_a_trust_policy_signers_have_the_names_of_its_people(
    uwf: Uwf, root: Path, evidence: Evidence
) -> None:
    configure("gpg.ssh.allowedSignersFile", "/dev/null")
    uwf("trust", "init")
    uwf("export", evidence.thread, "--audit-json", "report.json")
    report = json.loads(Path("report.json").read_text())
    name = report["record"]["steps"][0]["signature"]["signer"]
    assert list(uwf("trust", "show").json["people"]) == [name]
    public = evidence.key.with_suffix(".pub").read_text()
    evidence.signers.write_text(f'{name} namespaces="git,uwf" {public}')
    assert checked(evidence, report) == (0, f"{report['record']['head']}: as said, signed by {name}\n")


def test_another_signer_than_those_named_is_found(evidence: Evidence, report: dict[str, Any]) -> None:
    evidence.signers.write_text(
        "eve@example.invalid ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
    )
    status, said = checked(evidence, report)
    assert status == 1 and '"good", but is "unknown"' in said and "no known key signed it" in said


def test_a_signature_that_was_made_for_git_counts_for_no_report(
    evidence: Evidence, report: dict[str, Any]
) -> None:
    """Whoever gets somebody to sign a commit must not get a report signed by it, nor the other way round."""
    unsigned = {name: value for name, value in report.items() if name != "signature"}
    text = json.dumps(unsigned, sort_keys=True, separators=(",", ":"))
    for namespace, status in (("uwf", 0), ("git", 1)):
        words = ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", str(evidence.key)]
        made = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
        assert checked(evidence, {**unsigned, "signature": made})[0] == status


def test_ids_in_a_report_are_no_options_and_its_words_control_no_terminal(
    evidence: Evidence, report: dict[str, Any]
) -> None:
    wanted = evidence.folder / "written"
    for name in ("head", "end"):
        value = (
            f"--output={wanted}"
            if name == "head"
            else {**report["record"]["end"], "tag": f"--output={wanted}"}
        )
        assert checked(evidence, {**report, "record": {**report["record"], name: value}})[0] == 1
    assert not wanted.exists()
    odd = {**report["record"], "thread": "\x1b[31mred", "\x1b[2Jkey": "\x1b]0;title\x07"}
    status, said = checked(evidence, {**report, "record": odd})
    assert status == 1 and "\x1b" not in said
