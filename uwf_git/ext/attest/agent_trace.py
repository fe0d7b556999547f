"""The code of a thread's steps as records of Agent Trace 0.1.0 (agent-trace.dev), one for each commit.

`git blame` names the commit of a line, and the commit's record has the line: its model and its thread. Commits that
were merged in are left out. One that is older than the step before, which the agent only fetched, is of unknown origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from uwf_git.ext.attest.statement import PREDICATE
from uwf_git.plugin import (
    HUMAN,
    VERSION,
    CommitLines,
    Instance,
    Revision,
    ThreadId,
    added_lines,
    agent_programs,
    iso,
    logs_url,
)

SPECIFICATION = "0.1.0"
_LONGEST_MODEL = 250
_UNKNOWN = {"type": "unknown"}
_WITH_MODEL = ("model", "protocol", "cli")


def records(instance: Instance, record: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records of a thread's code, oldest first, and the commits that are not on this machine."""
    thread = ThreadId(record["thread"])
    kinds = {program.name: program.kind for program in agent_programs()}
    url = logs_url(instance, thread)
    records_here, missing = [], []
    for step, since in _steps(record):
        if step["code"] is None:
            continue
        commits = added_lines(instance, thread, Revision(**step["code"]))
        if commits is None:
            missing.append(step["code"]["commit"])
        for commit in commits or ():
            if commit.files:
                contributor = _contributor(step, kinds.get(step["agent"], ""))
                is_older = iso(commit.time) < since
                records_here.append(_record(thread, step, commit, url, _UNKNOWN if is_older else contributor))
    return records_here, missing


def _steps(record: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each step, and the time of the commit that it follows."""
    since = record["start"]["time"]
    for step in record["steps"]:
        if step["child"]:
            yield from _steps(step["child"])
        yield step, since
        since = step["time"]


def _record(
    thread: ThreadId, step: Mapping[str, Any], commit: CommitLines, url: str, contributor: Mapping[str, str]
) -> dict[str, Any]:
    shown = {"url": url} if url else {}
    return {
        "version": SPECIFICATION,
        "id": str(uuid5(NAMESPACE_URL, f"{PREDICATE} {step['node']} {commit.commit}")),
        "timestamp": step["time"],
        "vcs": {"type": "git", "revision": commit.commit},
        "tool": {"name": "uwf", "version": VERSION},
        "files": [
            {
                "path": file.path,
                "conversations": [
                    {
                        **shown,
                        "contributor": dict(contributor),
                        "ranges": [{"start_line": first, "end_line": last} for first, last in file.ranges],
                    }
                ],
            }
            for file in commit.files
        ],
        "metadata": {
            "uwf": {
                "thread": thread,
                **{name: step[name] for name in ("node", "number", "role", "agent", "session")},
            }
        },
    }


def _contributor(step: Mapping[str, Any], kind: str) -> Mapping[str, str]:
    if step["model"]:
        return {"type": "ai", "model_id": step["model"][:_LONGEST_MODEL]}
    if step["agent"] == HUMAN:
        return {"type": "human"}
    return {"type": "ai"} if kind in _WITH_MODEL else _UNKNOWN
