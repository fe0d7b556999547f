"""Secrets in threads that are about to leave. What was known to be one when it was stored is not in there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid
from uwf_git.git.objects import BLOB
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid
from uwf_git.store import layout

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance


def refuse_secrets(
    instance: Instance, git: Git, refs: Mapping[str, Oid], objects: Iterable[bytes], way: str
) -> None:
    """Raise Invalid for a known secret in objects that these refs lead to; `way` is what else can be done."""
    forms = [form.encode() for form in instance.redactor.known]
    for raw in objects if forms else ():
        oid = Oid(raw=raw)
        kind, data = instance.store.repository.read(oid)
        if kind != BLOB or not any(form in data for form in forms):
            continue
        if spot := instance.redactor.first(data):
            ref = next((ref for ref, tip in refs.items() if raw in objects_of(git, [tip])), "what is new")
            what = f"thread {layout.thread_of(ref)}" if layout.is_thread_ref(ref) else ref
            raise Invalid(
                f"{what} has {spot}, which was not known when it was stored, and would leave this machine",
                f"{way}; if it is no secret, name its variable in notSecrets",
            )


def objects_of(git: Git, tips: Iterable[Oid]) -> list[bytes]:
    """Return all objects that commits and tags lead to, without these themselves."""
    out = git.run("rev-list", "--objects", "--stdin", stdin="".join(f"{tip}\n" for tip in tips).encode()).out
    return [bytes.fromhex(line.partition(b" ")[0].decode()) for line in out.splitlines() if b" " in line]
