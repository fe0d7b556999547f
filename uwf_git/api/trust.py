"""The trust policy of a store: reading, making and changing it, and the hooks by which a server enforces it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid, NotFound, SigningFailed, Usage
from uwf_git.base.text import iso
from uwf_git.format.ids import name_problem
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.trust import policies
from uwf_git.trust.policy import SUBJECTS, Rule

if TYPE_CHECKING:
    from uwf_git.trust.policy import Policy


_RULES = """\
# rules:
#   - threads: "*"              # by the names of their workflows
#     require: signed           # by anybody above
#   - threads: release-*
#     of: [answers, ends]       # or starts, steps
#     signed-by: [NAME]         # people and groups
#   - workflows: "*"            # or crews, suites, baselines
#     signed-by: [NAME]
"""


def show(instance: Instance) -> dict[str, Any]:
    """Return the policy in force as JSON: the first and the current commit, who signed it and when, and what it
    says. `you` is the user's name in it, None if their key is not in it. Raises NotFound without a policy."""
    policy = _current(instance)
    known = policies.remembered(instance.store.repository)
    value = {
        "first": str(known.first) if known is not None else policy.commit,
        **_version(instance, Oid(hex=policy.commit)),
        "you": _me(instance, policy),
        **policy.to_json(),
    }
    ref = instance.store.repository.ref(layout.POLICY)
    if ref is None or str(ref) != policy.commit:
        value["problem"] = f"{layout.POLICY} was moved by force to {ref or 'nothing'}, which is not followed"
    return value


def file(instance: Instance) -> str:
    """Return the trust file in force, as written. Raises NotFound."""
    commit = Oid(hex=_current(instance).commit)
    return policies.text_of(instance.store.repository, commit).decode("utf-8")


def log(instance: Instance) -> list[dict[str, Any]]:
    """Return the policy's versions, newest first. Raises NotFound."""
    tip = Oid(hex=_current(instance).commit)
    return [_version(instance, each) for each in policies.lineage(instance.store.repository, tip)]


def change(instance: Instance, text: bytes, name: str, accept_existing: bool = False) -> dict[str, Any]:
    """Make a trust file the policy; with `accept_existing` also all records here that don't meet it are accepted.
    Moves and raises as `trust.policies.write`; Usage if the file accepts some already."""
    instance.require_person("changes the trust policy")
    if accept_existing:
        text = _accepting(instance, text, name)
    before = policies.current(instance)
    if before is not None:
        from uwf_git.trust.judgement import note_signatures

        note_signatures(instance, instance.store.repository.refs(without=layout.REMOTES))
    commit = policies.write(instance, text, name)
    changed = before is None or before.commit != str(commit)
    return {**_version(instance, commit), "changed": changed}


def _accepting(instance: Instance, text: bytes, name: str) -> bytes:
    from uwf_git.store.index import Overlay
    from uwf_git.store.indexing import Store
    from uwf_git.trust.judgement import MET, Requirements
    from uwf_git.trust.policy import parse
    from uwf_git.verify.whole import local_refs

    repository, policy = instance.store.repository, parse(text, name)
    refs = {ref: oid for ref, oid in local_refs(repository).items() if oid is not None}
    judged = Requirements(Store(repository, Overlay(instance.store.index)), policy).judge(refs)
    tips = sorted({str(refs[each.record.ref]) for each in judged if each.outcome != MET})
    if not tips:
        return text
    if policy.accepted:
        raise Usage(
            f"{name} has accepted: already", f"add to it: {', '.join(tips[:3])}" + ", …" * (len(tips) > 3)
        )
    lines = "".join(f'  - "{tip}"\n' for tip in tips)
    return text.rstrip() + f"\naccepted:\n{lines}".encode()


def begin(instance: Instance, name: str | None = None) -> dict[str, Any]:
    """Make a first policy whose maintainer is the user, under a name. Raises Usage if there is one, SigningFailed
    without a key."""
    from uwf_git.trust.own_key import own_key

    if policies.current(instance) is not None:
        raise Usage("there is a trust policy already", "see: uwf trust show")
    repository = instance.store.repository
    key, user = own_key(repository), repository.user
    called = name or _name(user.name, user.email)
    if problem := name_problem(called):
        raise Usage(f"the name {called!r} {problem}", "uwf trust init NAME")
    shown = key.text if key.kind == "ssh" else f"{{{key.kind}: {key.fingerprints[0]}}}"
    text = (
        f"people:\n  {_scalar(called)}:\n    emails: [{_scalar(user.email)}]\n    keys:\n      - {shown}\n"
        f"maintainers: [{_scalar(called)}]\n{_RULES}"
    )
    return {**change(instance, text.encode(), "trust.yaml"), "name": called}


def _current(instance: Instance) -> Policy:
    repository = instance.store.repository
    policy = policies.current(instance)
    if policy is None:
        ref = repository.ref(layout.POLICY)
        if ref is not None and (found := policies.problems(repository, ref)):
            raise NotFound(f"no trust policy counts here: {found[0].message}", "see: uwf verify")
        raise NotFound("there is no trust policy", "make one: uwf trust init")
    return policy


def _version(instance: Instance, commit: Oid) -> dict[str, Any]:
    repository = instance.store.repository
    signer, when = policies.signer_of(repository, commit), repository.commit(commit).time
    return {"commit": str(commit), "signer": signer, "time": iso(when)}


def _me(instance: Instance, policy: Policy) -> str | None:
    from uwf_git.trust.own_key import own_key

    try:
        return own_key(instance.store.repository).owner(policy)
    except SigningFailed:
        return None


def _name(name: str, email: str) -> str:
    for words in (email.partition("@")[0], name):
        if plain := re.sub(r"[^\w.-]+", "-", words.casefold()).strip(".-_"):
            return plain[:60]
    return "me"


def _scalar(text: str) -> str:
    from uwf_git.format.yaml12 import scalar

    return scalar(text)


def rule_text(value: Mapping[str, Any]) -> str:
    """Return a rule's JSON as a line: `answers of threads release-*: signed by ann`."""
    subject = next(each for each in SUBJECTS if each in value)
    rule = Rule(
        subject, tuple(value[subject]), frozenset(value.get("of", ())), tuple(value.get("signed-by", ()))
    )
    return str(rule)


_MARK = "# uwf remote hook"
_UPDATE, _FIRST = "update", "pre-receive"
_SCRIPT = """\
#!/bin/sh
{mark}: judges each pushed ref of uwf by the trust policy of this repository.
# As hooks/update it decides, and refuses if anything fails. As hooks/pre-receive it judges the refs of a push together,
# for hooks/update to look up, and refuses nothing.
LC_ALL=C
export LC_ALL
ordinary() {{ # REF: no name that uwf may have to do with
	case $1 in
	*[uU][wW][fF]*|*[!A-Za-z0-9._/+@=,%#-]*) return 1 ;;
	refs/heads/*|refs/tags/*|refs/notes/*) return 0 ;;
	*) return 1 ;;
	esac
}}
judge() {{ {python} -P -m uwf_git.sync.update_hook "$@"; }}
verdicts=${{GIT_DIR:-.}}/uwf/hook/$PPID
case $0 in
*pre-receive)
	rm -f "$verdicts"
	push=$(while read -r old new ref; do ordinary "$ref" || printf '%s\\n' "$old $new $ref"; done)
	if [ -n "$push" ]; then printf '%s\\n' "$push" | judge --push "$verdicts"; fi
	exit 0
	;;
esac
if ordinary "$1"; then exit 0; fi
if grep -qxF "$1 $2 $3" "$verdicts" 2>/dev/null; then exit 0; fi
judge "$1" "$2" "$3" "$verdicts"
"""


def script() -> str:
    """Return the hook, which calls this installation of uwf."""
    return _SCRIPT.format(mark=_MARK, python=shlex.quote(sys.executable))


def installed(repository: Path) -> Path:
    """Write the hook to where git runs a repository's hooks, as `update` and, unless there is another one,
    `pre-receive`; return the first's path. Raises NotFound, Usage if there is another `update`."""
    folder = repository.expanduser()
    if not (folder / "objects").is_dir() or not (folder / "HEAD").is_file():
        raise NotFound(f"{repository} is not a bare repository", "make one with: git init --bare PATH")
    path = _hooks_of(folder) / _UPDATE
    try:
        if not _is_ours(path):
            raise Usage(f"{path} is another hook", "call this one from it: uwf remote hook prints it")
        _write(path)
        if _is_ours(first := path.with_name(_FIRST)):
            _write(first)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}", "check its permissions") from None
    return path


def _hooks_of(repository: Path) -> Path:
    """Return the folder in which git looks for a bare repository's hooks, which need not exist."""
    from uwf_git.git.repository import Repository

    configured = Repository(repository).config.value("core.hooksPath")
    return (repository / Path(configured).expanduser()) if configured else repository / "hooks"


def pre_receive_of_others(update: Path) -> Path | None:
    """Return the `pre-receive` hook beside an installed one if it is another's, so that no push is judged whole."""
    first = update.with_name(_FIRST)
    return None if _is_ours(first) else first


def _is_ours(path: Path) -> bool:
    return not os.path.lexists(path) or _MARK in path.read_text("utf-8", "replace")


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(script())
    aside.chmod(0o755)
    aside.replace(path)
