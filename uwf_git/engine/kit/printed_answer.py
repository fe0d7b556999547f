"""The answer within what a program printed: among its logs and whatever it quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from uwf_git.base.text import without_control
from uwf_git.engine.kit.answer import Candidate, candidates, cleaned, disagree, is_cut, unfinished, without
from uwf_git.engine.kit.candidate import Verdict
from uwf_git.engine.kit.extract import Checks, ExpectedOutput, contradicted, with_comments
from uwf_git.engine.kit.mentions import Decisive, extra_fields
from uwf_git.format.shape import named
from uwf_git.format.statuses import STATUS

if TYPE_CHECKING:
    from uwf_git.engine.step_parts import Changes


def judge_printed(
    text: str, wanted: ExpectedOutput, changes: Changes | None = None, failed: bool = False
) -> Verdict | None:
    """Return the verdict on a program's output, with the `changes` written elsewhere; None if nothing in it could
    be an answer: no JSON, fence or block has a field of the schema or a status. Whatever could be one must be
    read, and agree with the others. What a `failed` program quotes within a line is no answer. Raises as `judge`."""
    own, decisive = named(wanted.schema.payload), Decisive(wanted.schema.payload)
    text = cleaned(without_control(text))
    whole = text.strip()
    stands_alone = whole.startswith("---") or (whole.startswith("{") and whole.endswith("}"))
    names = _Names((*STATUS, *own.names))
    verdicts: list[tuple[Candidate, Verdict]] = []

    check = Checks(wanted, changes)

    def refused(line: int, problem: str) -> Verdict:
        where = "" if "line" in problem else f"; it begins in line {line}"
        return Verdict(None, wanted.role.schema, (f"{problem}{where}",))

    def accepts(fields: Any) -> bool:
        return isinstance(fields, dict) and not check(fields).problems

    def concerns(source: str) -> bool:
        if names.written.search(source):
            return True
        return not failed and source[:1] in ("{", "[") and is_cut(source) and whole.endswith(source.rstrip())

    examples = 0
    for candidate in candidates(text, accepts, concerns):
        could_be = names.open(candidate.source) if candidate.value is None else names.are_in(candidate.value)
        alone = stands_alone and candidate.regular and not candidate.problem and accepts(candidate.value)
        if candidate.example:
            examples = examples or (candidate.line if could_be else 0)
        elif candidate.value is None and could_be:
            return refused(candidate.line, candidate.problem or "it holds fields that are no mapping")
        elif alone or could_be:
            verdict = check(candidate.value, candidate.body)
            if verdict.problems:
                return (
                    verdict
                    if isinstance(candidate.value, dict)
                    else refused(candidate.line, verdict.problems[0])
                )
            verdicts.append((candidate, with_comments(verdict, candidate.comments)))
    if not verdicts and not failed:
        if (loose := names.loosely_in(text)) is not None:
            return refused(text.count("\n", 0, loose) + 1, "it holds fields of an answer within other text")
        if (mention := next(decisive.mentions(text), None)) is not None:
            return refused(mention.line, f"it speaks of {mention.field} within other text")
        if (line := unfinished(text)) is not None:
            return refused(line, "it ends within what may be an answer")
        if decisive.denied(text):
            return refused(1, "it says no, but not in a field of the schema")
    if not verdicts and examples:
        return refused(examples, "the only fields are within reasoning, or called an example")
    if not verdicts:
        return None
    outputs = {json.dumps([verdict.type, verdict.output], sort_keys=True) for _, verdict in verdicts}
    lines = [candidate.line for candidate, _ in verdicts]
    verdict = verdicts[0][1]
    if len(outputs) == 1:
        rest = without(text, (candidate for candidate, _ in verdicts))
        extras = [(candidate.line, extra_fields(candidate.value, own.has)) for candidate, _ in verdicts]
        lines.append(contradicted(decisive, verdict.output, rest, extras) or 0)
    if len(outputs) > 1 or lines[-1]:
        return Verdict(None, wanted.role.schema, (disagree(lines),))
    return verdict


class _Names:
    """The names of fields that an answer may have, in any case."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.casefold() for name in names}
        listed = "|".join(sorted(map(re.escape, dict.fromkeys(names)), key=len, reverse=True))
        self.written = re.compile(rf"(?i)(?<![\w$])(?:{listed})(?![\w$])")
        self._line = re.compile(rf"(?im)^[ \t]*(?:- +)?[\"']?(?:{listed})[\"']?[ \t]*[:=]")
        self._key = re.compile(rf"(?i)[\"'](?:{listed})\\{{0,8}}[\"']\s*:|\{{\s*(?:{listed})\s*:")
        self._tag = re.compile(rf"(?i)<(?:{listed})\s*>[^<>]*</|<[\w:.-]+\s(?:[^<>]*\s)?(?:{listed})\s*=")
        self._broken_key = re.compile(rf"(?i)(?<![\w$])(?:{listed})\W{{0,4}}[:=]")

    def are_in(self, value: Any, depth: int = 0) -> bool:
        """Return whether an object has one of the names, at any depth."""
        if isinstance(value, dict):
            if any(str(key).casefold() in self._names for key in value):
                return True
            value = list(value.values())
        return isinstance(value, list) and depth < 100 and any(self.are_in(item, depth + 1) for item in value)

    def open(self, source: str) -> bool:
        """Return whether a broken block or object has one of the names, or has no end."""
        if source.startswith(("{", "[")):
            return is_cut(source) or self._broken_key.search(source) is not None
        return self._line.search(source) is not None

    def loosely_in(self, text: str) -> int | None:
        """Return where an object within a line or a tag has one of the names, or a text that has fields only."""
        for key in self._key.finditer(text):
            if key[0].startswith("{") or _is_open(text, key.start()):
                return key.start()
        if tag := self._tag.search(text):
            return tag.start()
        lines = [line for line in text.split("\n") if line.strip()]
        if not all(re.match(r"[\"']?[\w$.-]+[\"']?[ \t]*[:=]|[ \t]+\S|- |[+-]{3}", line) for line in lines):
            return None
        prose = re.compile(r"[ \t]*no[ \t]+\w", re.IGNORECASE)  # "Success: no issues found"
        fields = (field.start() for field in self._line.finditer(text) if not prose.match(text, field.end()))
        return next(fields, None)


def _is_open(text: str, at: int) -> bool:
    """Return whether a brace before a place has no end before it."""
    depth = 0
    for sign in reversed(re.findall(r"[{}]", text[max(0, at - 20_000) : at])):
        depth += 1 if sign == "}" else -1
        if depth < 0:
            return True
    return False
