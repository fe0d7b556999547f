"""The trust policy of a store: reading, making and changing it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.plugin import (
    RULE_SUBJECTS,
    NotFound,
    Oid,
    SigningFailed,
    TrustRule,
    Usage,
    iso,
    layout,
    name_problem,
    note_signatures,
    own_key,
    parse_trust_file,
    trust_policies,
    unmet_tips,
    yaml_scalar,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, TrustPolicy


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
    known = trust_policies.remembered(instance.store.repository)
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
    return trust_policies.text_of(instance.store.repository, commit).decode("utf-8")


def log(instance: Instance) -> list[dict[str, Any]]:
    """Return the policy's versions, newest first. Raises NotFound."""
    tip = Oid(hex=_current(instance).commit)
    return [_version(instance, oid) for oid in trust_policies.lineage(instance.store.repository, tip)]


def change(instance: Instance, text: bytes, name: str, accept_existing: bool = False) -> dict[str, Any]:
    """Make a trust file the policy; with `accept_existing` also all records here that don't meet it are accepted.
    Moves and raises as `trust.policies.write`; Usage if the file accepts some already."""
    instance.require_person("changes the trust policy")
    if accept_existing:
        text = _accepting(instance, text, name)
    before = trust_policies.current(instance)
    if before is not None:
        note_signatures(instance, instance.store.repository.refs(without=layout.REMOTES))
    commit = trust_policies.write(instance, text, name)
    changed = before is None or before.commit != str(commit)
    return {**_version(instance, commit), "changed": changed}


def _accepting(instance: Instance, text: bytes, name: str) -> bytes:
    policy = parse_trust_file(text, name)
    tips = unmet_tips(instance, policy)
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
    if trust_policies.current(instance) is not None:
        raise Usage("there is a trust policy already", "see: uwf trust show")
    repository = instance.store.repository
    key, user = own_key(repository), repository.user
    called = name or _name(user.name, user.email)
    if problem := name_problem(called):
        raise Usage(f"the name {called!r} {problem}", "uwf trust init NAME")
    shown = key.text if key.kind == "ssh" else f"{{{key.kind}: {key.fingerprints[0]}}}"
    text = (
        f"people:\n  {yaml_scalar(called)}:\n    emails: [{yaml_scalar(user.email)}]\n    keys:\n      - {shown}\n"
        f"maintainers: [{yaml_scalar(called)}]\n{_RULES}"
    )
    return {**change(instance, text.encode(), "trust.yaml"), "name": called}


def _current(instance: Instance) -> TrustPolicy:
    repository = instance.store.repository
    policy = trust_policies.current(instance)
    if policy is None:
        ref = repository.ref(layout.POLICY)
        if ref is not None and (problems := trust_policies.problems(repository, ref)):
            raise NotFound(f"no trust policy counts here: {problems[0].message}", "see: uwf verify")
        raise NotFound("there is no trust policy", "make one: uwf trust init")
    return policy


def _version(instance: Instance, commit: Oid) -> dict[str, Any]:
    repository = instance.store.repository
    signer, when = trust_policies.signer_of(repository, commit), repository.commit(commit).time
    return {"commit": str(commit), "signer": signer, "time": iso(when)}


def _me(instance: Instance, policy: TrustPolicy) -> str | None:
    try:
        return own_key(instance.store.repository).owner(policy)
    except SigningFailed:
        return None


def _name(name: str, email: str) -> str:
    for words in (email.partition("@")[0], name):
        if plain := re.sub(r"[^\w.-]+", "-", words.casefold()).strip(".-_"):
            return plain[:60]
    return "me"


def rule_text(value: Mapping[str, Any]) -> str:
    """Return a rule's JSON as a line: `answers of threads release-*: signed by ann`."""
    subject = next(word for word in RULE_SUBJECTS if word in value)
    rule = TrustRule(
        subject, tuple(value[subject]), frozenset(value.get("of", ())), tuple(value.get("signed-by", ()))
    )
    return str(rule)
