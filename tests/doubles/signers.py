"""People with ssh keys of their own, and the git configuration that each signs with."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import git_servers
from programs import need
from two_machines import Machine


class Signer:
    """A person with a key, which is made unless the folder has it. `config` is the file of their git settings."""

    def __init__(self, folder: Path, name: str) -> None:
        need("ssh-keygen")
        self.name = name
        self.key = folder / "keys" / name
        self.key.parent.mkdir(exist_ok=True, parents=True)
        if not self.key.exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.key)]
            subprocess.run(command, check=True, capture_output=True)
        self.config = folder / "keys" / f"{name}.gitconfig"
        self.signs()

    @property
    def public(self) -> str:
        return self.key.with_suffix(".pub").read_text().strip()

    @property
    def email(self) -> str:
        return f"{self.name}@example.invalid"

    def signs(self, commits: bool = True, key: Path | None = None) -> None:
        """Writes the configuration, with or without signing, by this key or another."""
        self.config.write_text(
            f"[user]\n\tname = {self.name}\n\temail = {self.email}\n\tsigningKey = {key or self.key}\n"
            f"[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = {str(commits).lower()}\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"GIT_CONFIG_GLOBAL": str(self.config)}


class SigningMachine(Machine):
    """A machine that one of these people uses."""

    def __init__(self, uwf: object, root: Path, signer: Signer) -> None:
        super().__init__(uwf, root)  # type: ignore[arg-type]
        self.signer = signer

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self.signer.environment


def team_of_ann(uwf: object, folder: Path, kept: Path) -> dict[str, Signer]:
    """Ann, Bob and Eve; a bare repository `shared.git`; and Ann's store in `at-ann`, which has the workflow `relay` and
    that remote. They are made once in `kept`, and copied into the folder."""
    names = ("ann", "bob", "eve")
    if not kept.exists():
        people = {name: Signer(kept, name) for name in names}
        server = git_servers.bare(kept / "shared.git")
        ann = SigningMachine(uwf, kept / "at-ann", people["ann"])
        ann("init")
        ann("remote", "add", "origin", server)
        ann.registers()
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    store = folder / "at-ann" / "store.git"
    git_servers.git("--git-dir", store, "config", "remote.origin.url", folder / "shared.git")
    return {name: Signer(folder, name) for name in names}


def trust_file(
    people: Mapping[str, Signer], maintainers: str = "ann", rules: str = "", more: str = ""
) -> str:
    """A trust file of people with one key each; `rules` are its list, in YAML."""
    lines = ["people:"]
    for name, signer in people.items():
        lines += [f"  {name}:", f"    emails: [{signer.email}]", f"    keys: [{signer.public}]"]
    lines += [f"maintainers: [{maintainers}]", *([f"rules: {rules}"] if rules else [])]
    return "\n".join(lines) + "\n" + more
