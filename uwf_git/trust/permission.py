"""Permission to make a record: whether the user can write it as the trust policy requires, asked before work that
everybody else would refuse. Light without a policy: importing it loads nothing else of this package."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.base.errors import RequirementUnmet, SigningFailed
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.new_record import ENDS, FORKS, PAUSES, NewRecord

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

_TAGS = frozenset({ENDS, PAUSES, FORKS})
"""The records that are tags, whose signing git configures apart."""


def guard(instance: Instance, record: NewRecord) -> None:
    """Refuse a record that the user can't make as the trust policy requires: raise RequirementUnmet if a rule about it
    is not met by their configuration and key, or by the version that a thread would start with."""
    if not has_policy(instance):
        return
    if record.version is not None and (reason := unmet(instance, "workflow", record.name, record.version)):
        raise RequirementUnmet(reason, "see: uwf trust show")
    _raise_if_unable(instance, record)


def has_policy(instance: Instance) -> bool:
    """Return whether a store has a policy, or had one."""
    repository = instance.store.repository
    return repository.ref(layout.POLICY) is not None or (repository.private / "policy").exists()


def _raise_if_unable(instance: Instance, record: NewRecord) -> None:
    from uwf_git.trust import policies
    from uwf_git.trust.own_key import own_key

    policy = policies.current(instance)
    subject = ref_kinds.rule_for(record.kind) or record.kind
    rules = policy.rules_for(subject, record.name, record.of) if policy is not None else ()
    if policy is None or not rules:
        return
    what = f"the trust policy wants {rules[0]}"
    repository = instance.store.repository
    is_tag = record.of and _TAGS.issuperset(record.of)
    if not (repository.config.signs_tags if is_tag else repository.config.signs_commits):
        raise RequirementUnmet(f"{what}, and you don't sign", repository.config.how_to_sign)
    try:
        key = own_key(repository)
    except SigningFailed as error:
        raise RequirementUnmet(f"{what}: {error.message}", error.hint) from None
    who = key.owner(policy)
    ask = f"ask {' or '.join(policy.maintainers)} to change it: uwf trust show"
    if who is None:
        raise RequirementUnmet(f"{what}, and your key {key.fingerprints[0]} is not in it", ask)
    now = time.time()
    owned = next(item for item in policy.people[who].keys if item.fingerprint in key.fingerprints)
    if now < owned.since or (owned.end is not None and now >= owned.end):
        raise RequirementUnmet(f"{what}, and your key {owned.fingerprint} is not valid now", ask)
    user = repository.user
    if policy.has_address_of_another(user.ident, who):
        raise RequirementUnmet(
            f"{what}, and your key is that of {who}, but you commit as {user.ident}",
            "use your own address: git config user.email",
        )
    for rule in rules:
        if rule.signers and who not in policy.members(rule.signers):
            hint = f"have it done by {' or '.join(rule.signers)}"
            raise RequirementUnmet(f"the trust policy wants {rule}, and you are {who}", hint)


def unmet(instance: Instance, kind: str, name: str, commit: Oid) -> str:
    """Return why a version doesn't meet the policy, "" if it does. `kind` is that of its record: "workflow"."""
    if not has_policy(instance):
        return ""
    from uwf_git.store.index import Overlay
    from uwf_git.store.indexing import Store
    from uwf_git.trust.judgement import MET, requirements

    required = requirements(Store(instance.store.repository, Overlay(instance.store.index)))
    row = ref_kinds.kind_of_record(kind)
    if required is None or row is None:
        return ""
    ref = row.prefix + name
    registered = set(_chain(instance, ref))
    judged = required.judge({ref: commit}, lambda oid: oid in registered)
    unmet_here = [item for item in judged if item.outcome != MET and item.record.subject == row.rule]
    return unmet_here[-1].reason if unmet_here else ""


def _chain(instance: Instance, ref: str) -> Iterator[Oid]:
    repository = instance.store.repository
    at = repository.ref(ref)
    while at is not None:
        yield at
        parents = repository.commit(at).parents
        at = parents[0] if parents else None
