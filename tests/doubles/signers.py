"""People with ssh keys of their own, and the git configuration that each signs with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from programs import need
from two_machines import Machine


class Signer:
    """A person with a key. `config` is the file of their git configuration."""

    def __init__(self, folder: Path, name: str) -> None:
        need("ssh-keygen")
        self.name = name
        self.key = folder / "keys" / name
        self.key.parent.mkdir(exist_ok=True, parents=True)
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


def trust_file(
    people: Mapping[str, Signer], maintainers: str = "ann", rules: str = "", more: str = ""
) -> str:
    """A trust file of people with one key each; `rules` are its list, in YAML."""
    lines = ["people:"]
    for name, signer in people.items():
        lines += [f"  {name}:", f"    emails: [{signer.email}]", f"    keys: [{signer.public}]"]
    lines += [f"maintainers: [{maintainers}]", *([f"rules: {rules}"] if rules else [])]
    return "\n".join(lines) + "\n" + more
