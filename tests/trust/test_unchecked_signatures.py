"""A signature that could not be checked is neither good nor forged."""

from __future__ import annotations

import shutil
from pathlib import Path

import git_servers
import pytest
from conftest import Uwf
from evidence import check_file, cloned
from signers import Signer, SigningMachine, trust_file

RULES = "[{threads: '*', require: signed}]"


@pytest.fixture
def ann(uwf: Uwf, hermetic: Path) -> SigningMachine:
    """A store with a signed thread and a policy, and its remote."""
    signer = Signer(hermetic, "ann")
    machine = SigningMachine(uwf, hermetic / "ann", signer)
    machine("init")
    (hermetic / "trust.yaml").write_text(trust_file({"ann": signer}, rules=RULES))
    machine("trust", "set", hermetic / "trust.yaml")
    machine("remote", "add", "origin", git_servers.bare(hermetic / "shared.git"))
    machine.registers()
    machine.steps(machine.starts())
    machine("push")
    return machine


def without_ssh_keygen(folder: Path) -> dict[str, str]:
    """The variables of a user whose PATH has git, but no ssh-keygen."""
    folder.mkdir()
    for name in ("git", "sh", "env"):
        program = shutil.which(name)
        assert program is not None
        (folder / name).symlink_to(program)
    return {"PATH": str(folder)}


def forget_signatures(machine: SigningMachine) -> None:
    for each in (machine.store / "uwf").glob("signatures*"):
        each.unlink()


def test_without_its_program_a_signature_is_undecided_and_no_forgery(
    ann: SigningMachine, uwf: Uwf, hermetic: Path
) -> None:
    variables = without_ssh_keygen(hermetic / "bin")
    eve = SigningMachine(uwf, hermetic / "eve", Signer(hermetic, "eve"))
    forget_signatures(ann)
    for done in (
        ann("verify", "--signatures", env=variables, check=125),
        eve("clone", hermetic / "shared.git", env=variables, check=125),
    ):
        assert done.error["code"] == "undecided" and "could not be checked" in done.error["message"]
    assert not eve.refs()
    eve("pull")
    assert eve.heads() == ann.heads()
    forget_signatures(ann)
    ann("verify", "--signatures")


def test_a_temporary_folder_that_is_gone_makes_no_signature_invalid(
    ann: SigningMachine, hermetic: Path
) -> None:
    forget_signatures(ann)
    ann("verify", "--signatures", env={"TMPDIR": str(hermetic / "nowhere")})


def test_the_script_says_that_it_could_not_check(
    ann: SigningMachine, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (thread,) = ann.heads()
    ann("export", thread, "--audit-json", "report.json")
    clone = cloned(ann.store, hermetic / "clone")
    signers = hermetic / "signers"
    signers.write_text(f"ann {ann.signer.public}\n")
    assert "something is wrong" not in check_file(Path("report.json"), clone, "--signers", signers).stdout
    monkeypatch.setenv("PATH", without_ssh_keygen(hermetic / "bin")["PATH"])
    monkeypatch.setattr("evidence.need", lambda _: None)
    done = check_file(Path("report.json"), clone, "--signers", signers)
    assert done.returncode == 1 and "signatures could not be checked" in done.stderr
    assert "wrong" not in done.stdout
