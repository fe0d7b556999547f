"""Baselines of suites, at `refs/uwf/baselines/<suite>`, in versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.ext.evaluation import BASELINES
from uwf_git.ext.evaluation.node_types import BASELINE, SCHEMAS
from uwf_git.plugin import (
    Hash,
    NodeVersions,
    NotFound,
    RegisteredVersion,
    closest_names,
    counted,
    harmless,
    markdown,
)


class Baseline(NamedTuple):
    """The accepted scores by case: the normalised payload of its node. Independent of the run, which may not
    be here."""

    payload: Mapping[str, Any]

    @property
    def suite(self) -> str:
        return str(self.payload["suite"])


class Baselines(NodeVersions):
    """The baselines of one store."""

    refs = BASELINES
    kept = "a baseline"
    schema = SCHEMAS[BASELINE]

    @classmethod
    def type(cls) -> Hash:
        return BASELINE

    @classmethod
    def page(cls, payload: Mapping[str, Any]) -> bytes:
        """The scores, one per line, for diffs."""
        rows, means = [], []
        for case in payload["cases"]:
            scores = [run["score"] for run in case["runs"]]
            means.append(sum(scores) / len(scores))
            spread = "" if min(scores) == max(scores) else f"{min(scores):.2f} to {max(scores):.2f}"
            rows.append((markdown.inline(case["name"]), f"{means[-1]:.2f}", spread, str(len(scores))))
        text = (
            f"# Baseline of {markdown.code(payload['suite'])}\n\n{markdown.inline(payload['said'])}: a score of"
            f" {sum(means) / len(means):.2f} over {counted(len(means), 'case')}.\n\n"
            f"{markdown.table(('case', 'score', 'spread', 'runs'), rows)}\n"
        )
        return harmless(text).encode("utf-8")

    def current(self, name: str) -> RegisteredVersion:
        """Return a suite's newest baseline. Raises NotFound with how to set one."""
        try:
            return super().current(name)
        except NotFound as error:
            match = closest_names(name, self.names())
            meant = f' · did you mean "{match}"?' if match else ""
            raise NotFound(error.message, f"set one: {self.refs.commands} set {name}{meant}") from None

    def baseline(self, version: RegisteredVersion) -> Baseline:
        """Return a version's baseline. Raises NotFound, Invalid."""
        return Baseline(self.definition(version))
