"""Verifying effects: each follows from its thread and is bound to its head, and no settlement precedes its effect. A
check has its log."""

from __future__ import annotations

from typing import assert_never

from uwf_git.ext.landing import EFFECTS
from uwf_git.ext.landing.effect_records import (
    Check,
    Effect,
    Settlement,
    key_of,
    page_and_message,
    parse_effect_record,
)
from uwf_git.ext.landing.node_types import CHECK, EFFECT, SETTLEMENT
from uwf_git.plugin import (
    TEXT,
    BadObject,
    CheckReport,
    Hash,
    KnownRecords,
    Oid,
    PlacedRecord,
    VerifiedRecord,
    check_page,
    has_record,
    place_of,
    verified_objects,
)


def check_effect(
    known: KnownRecords, commit: verified_objects.CommitObject, node: Hash, report: CheckReport
) -> VerifiedRecord | None:
    """Check a commit of `refs/uwf/effects/`. None if a parent is unreadable. Raises BadObject, UnknownWord."""
    placed = place_of(known, commit, node, EFFECTS, report)
    if not isinstance(placed, PlacedRecord):
        return placed
    if placed.content.type not in (EFFECT, SETTLEMENT, CHECK):
        raise BadObject("wrong-kind", f"node {node} is of type {placed.content.type}, no effect")
    content = parse_effect_record(placed.content)
    match content:
        case Settlement():
            _check_settlement(known, placed, content)
            placed.check_reached(known, report, frozenset([content.effect]))
        case Effect():
            _check_head(placed, content, report)
            _check_key(known, placed, content, report)
            placed.check_reached(known, report)
        case Check():
            _check_head(placed, content, report)
            placed.check_reached(known, report)
            _check_log(known, placed, content)
        case _:
            assert_never(content)
    if commit.time != content.at:
        report("wrong-chain", f"effect {node} says another time than its commit")
    page, message = page_and_message(node, content)
    check_page(known.objects, placed.files, placed.path, report, lambda: page)
    known.message(commit, report, message)
    return placed.record()


def _check_head(placed: PlacedRecord, content: Effect | Check, report: CheckReport) -> None:
    if (content.start, content.prev) != (placed.start, placed.prev):
        kind = type(content).__name__.lower()
        report("wrong-chain", f"{kind} {placed.node} is not of the head {placed.head.row.node}")


def _check_key(known: KnownRecords, placed: PlacedRecord, effect: Effect, report: CheckReport) -> None:
    start = Oid(raw=known.begin_of(placed.head).oid)
    if effect.key != key_of(start, effect.kind, effect.target, effect.name):
        report("wrong-chain", f"the key of effect {placed.node} does not follow from its thread")


def _check_log(known: KnownRecords, placed: PlacedRecord, check: Check) -> None:
    if known.nodes.get(check.log).type != TEXT:
        raise BadObject("wrong-kind", f"the log of check {placed.node} is node {check.log}, which is no text")


def _check_settlement(known: KnownRecords, placed: PlacedRecord, settlement: Settlement) -> None:
    if not has_record(known, placed.before, EFFECTS, settlement.effect):
        raise BadObject("wrong-chain", f"{placed.node} settles no effect that was recorded before it")
    if known.nodes.get(settlement.effect).type != EFFECT:
        raise BadObject("wrong-kind", f"{placed.node} settles node {settlement.effect}, which is no effect")
