"""Results of push and pull as text: a summary line, and a line for each conflict or omission; with `-v` a
line per ref. Values are those of the JSON, escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from uwf_cli import terminal
from uwf_git.base.text import counted
from uwf_git.store import layout, ref_kinds

MOST = 40
MOST_NAMED = 10  # in one line
# Results of pulled refs by case; the other cases changed nothing.
TOLD = {
    "unknown": "new",
    "behind": "moved on",
    "diverged": "diverged",
    "ended-there": "ended",
    "ended-there-behind": "ended",
    "ended-there-ahead": "ended",
    "ended-here-behind": "ended",
    "ended-twice": "ended",
    "deleted-there": "gone",
    "two-histories": "replaced",
    "united": "united",
    "joined-twice": "moved on",
    "two-commits": "same",
    "paused-there": "paused",
    "resumed-there": "resumed",
}
# Results without new content.
_APART = ("deleted-there", "paused-there", "resumed-there")


def pushed(value: Any, verbose: bool = False, by_name: bool = False) -> str:
    """Format a push. `by_name`: threads were deleted there on request."""
    remote, everything = value["remote"], [item["ref"] for item in value["pushed"]]
    arrived = [ref for ref in everything if not ref.startswith(layout.PAUSED)]
    deleted = [ref for ref in value["deleted"] if not ref.startswith(layout.PAUSED)]
    ended = _threads(ref for ref in arrived if ref.startswith(layout.ARCHIVE))
    lines = []
    if arrived:
        parts = counts(arrived, value.get("steps", 0), {"ended": len(ended)})
        lines.append(f"pushed to {remote}: {parts}")
    lines += code_lines(value, "pushed the code of")
    if landing := value.get("landing"):
        lines.append(f"made branch {landing['branch']} there: a page for whoever clones it with plain git")
    gone = _threads(deleted) - _threads(arrived)
    lifted = _threads(value["deleted"]) - _threads(deleted) - _threads(arrived)
    folded = _threads(ref for ref in value["deleted"] if ref.startswith(layout.ARCHIVE)) & gone
    if by_name:
        lines += _named(f"deleted on {remote}", gone, verbose, "; what is here stays")
    else:
        lines += _named(f"folded on {remote} too", folded, verbose)
        lines += _named(f"ended on {remote} too", gone - folded, verbose)
        lines += _named(f"resumed on {remote} too", lifted, verbose)
    lines += _named(f"paused on {remote} too", _threads(everything) - _threads(arrived), verbose)
    if verbose:
        lines += [f"pushed   {_short(ref)}" for ref in everything]
    lines += _held(remote, value.get("deletedThere", ()), verbose)
    behind, nothing = _threads(value.get("endedThere", ())), f"nothing new for {remote}"
    if behind and (lines or value["refused"]):
        lines += _named(f"ended on {remote}", behind, verbose, f"; {_brings(remote, behind)}")
    elif behind:
        has = "has" if len(behind) == 1 else "have"
        nothing += f", where {_some('thread', behind)[0]} {has} ended; {_brings(remote, behind)}"
    refused = [item for item in value["refused"] if by_name or not item["deletion"]]
    lines += [
        f"{terminal.style('refused', 'red')}  {_short(item['ref'])}: {item['reason']}" for item in refused
    ]
    kept = [item for item in value["refused"] if item not in refused]
    paused = [item for item in kept if item["ref"].startswith(layout.PAUSED)]
    kept = [item for item in kept if item not in paused]
    lines += [
        f"left     {_short(item['ref'])}: {item['reason']}; on other machines it stays paused"
        for item in paused
    ]
    if verbose or len(kept) == 1:
        still = "it counts as ended all the same"
        lines += [f"left     {_short(item['ref'])}: {item['reason']}; {still}" for item in kept]
    elif kept:
        still = "they count as ended all the same"
        lines.append(f"left     {counted(len(kept), 'ref')} of what ended: {kept[0]['reason']}; {still}")
    return _listing(lines, nothing, verbose)


def would_push(value: Any, verbose: bool = False) -> str:
    """Format a dry run."""
    to = f"would push to {value['remote']} ({value['url']})"
    lines = [f"{to}: {counts(value['wouldPush'], value['steps'])}"] if value["wouldPush"] else []
    lines += code_lines(value, "would push the code of")
    if verbose:
        lines += [f"would push   {_short(ref)}" for ref in value["wouldPush"]]
        lines += [f"would delete {_short(ref)}" for ref in value["wouldDelete"]]
    elif value["wouldDelete"]:
        lines.append(f"would delete there: {counts(value['wouldDelete'], 0)}")
    return _listing(lines, f"nothing new for {value['remote']}", verbose)


def code_lines(value: Any, doing: str) -> list[str]:
    """Name the code that goes to remotes of projects, not to the one of the threads."""
    groups: dict[tuple[str, str], list[str]] = {}
    for code in value.get("code", ()):
        groups.setdefault((code["project"], code["remote"]), []).append(code["branch"].removeprefix("refs/"))
    return [
        f"{doing} {counted(len(names), 'thread')} to {remote} of {project}: {', '.join(names[:MOST_NAMED])}"
        + (", …" if len(names) > MOST_NAMED else "")
        for (project, remote), names in groups.items()
    ]


def left_out_line(value: Any) -> str:
    """Return the line about what a push leaves out."""
    parts = [counted(value["threads"], "thread")] if value["threads"] else []
    parts += [counts(value["others"], 0)] if value["others"] else []
    return f"{' and '.join(parts)} of other projects left out; --all-projects includes them"


def _brings(remote: str, ended: Collection[str]) -> str:
    return f"uwf pull {remote} brings {'its end' if len(ended) == 1 else 'their ends'}"


def pulled(value: Any, verbose: bool = False) -> str:
    adopted = [entry for entry in value["adopted"] if entry["case"] in TOLD]
    arrived = [entry for entry in adopted if entry["case"] not in _APART]
    lines = []
    if arrived:
        of_threads = [entry for entry in arrived if entry["ref"].startswith((layout.THREADS, layout.ARCHIVE))]
        about = {
            what: len({entry["thread"] for entry in of_threads if TOLD[entry["case"]] == what})
            for what in ("new", "moved on", "ended", "diverged")
        }
        parts = counts([entry["ref"] for entry in arrived], value.get("steps", 0), about)
        lines.append(f"pulled from {value['remote']}: {parts}")
    pruned = value.get("pruned", ())
    adopted = [
        entry for entry in adopted if entry["case"] != "deleted-there" or entry.get("thread") not in pruned
    ]
    if verbose:
        lines += [_line(entry) for entry in adopted]
    else:
        lines += [_line(entry) for entry in arrived if entry.get("fork") or entry.get("proposal")]
        deleted = [entry for entry in adopted if entry["case"] == "deleted-there"]
        gone = {entry["thread"] for entry in deleted if entry.get("thread")}
        lines += _named(f"deleted on {value['remote']}", gone, False, "; what is here stays")
        for item in deleted:
            if kind := layout.word_for(item["ref"]):
                lines.append(f"deleted on {value['remote']}: {kind} {_name(item['ref'])}; what is here stays")
        for case in ("paused-there", "resumed-there"):
            of = [entry["thread"] for entry in adopted if entry["case"] == case]
            lines += _named(f"{TOLD[case]} on {value['remote']}", of, False)
    lines += [
        f"removed here, as on {value['remote']}: thread {thread}; uwf thread restore {thread} brings it back"
        for thread in pruned
    ]
    lines += [
        f"kept here, with steps that {value['remote']} never had: thread {thread}; uwf thread rm {thread} removes it"
        for thread in value.get("kept", ())
    ]
    for item in value["refused"]:
        what = terminal.style("left for later" if item["later"] else "refused", "red")
        lines.append(f"{what}  {_short(item['ref'])}: {item['problem']}")
    for item in value.get("rewritten", ()):
        lines.append(f"{terminal.style('rewritten', 'red')}  {item['message']}; yours is kept")
    for item in value.get("rolledBack", ()):
        back = f"uwf push {value['remote']} brings it there again"
        lines.append(f"{terminal.style('rolled back', 'red')}  {item['message']}; {back}")
    for item in value.get("merged", ()):
        if item["accepted"]:
            lines.append(f"merged     {_merged(item)}: now {item['accepted']['hash']}")
        else:
            lines.append(f"{terminal.style('refused', 'red')}  merge of {_merged(item)}: {item['problem']}")
    if value.get("strange"):
        many = counted(len(value["strange"]), "ref")
        lines.append(f"left       {many} that uwf doesn't know, such as {value['strange'][0]}")
    return _listing(lines, f"nothing new on {value['remote']}", verbose)


def counts(refs: Sequence[str], steps: int, about: Mapping[str, int] = {}) -> str:
    """Count what refs are of: `workflow solve-issue, 2 threads, 14 steps`. `about` counts threads by words."""
    threads = _threads(ref for ref in refs if ref.startswith((layout.THREADS, layout.ARCHIVE)))
    parts = []
    for prefix, kind in layout.words().items():
        if prefix != layout.PINS:
            parts += _some(kind, [_name(ref) for ref in refs if ref.startswith(prefix)])
    if threads:
        of = ", ".join(
            (what if len(threads) == 1 else f"{number} {what}") for what, number in about.items() if number
        )
        parts.append(_some("thread", threads)[0] + (f" ({of})" if of else ""))
    if steps:
        parts.append(counted(steps, "step"))
    paused = {_name(ref) for ref in refs if ref.startswith(layout.PAUSED)}
    parts += _some("paused thread", paused)
    attempts = {_name(ref) for ref in refs if ref.startswith(layout.ATTEMPTS)} - threads
    if attempts:
        parts.append("failed attempts of " + _some("thread", attempts)[0])
    parts += _some("month", [_name(ref) for ref in refs if ref.startswith(layout.FOLDED)], "archives of ")
    parts += _some("node", [_name(ref) for ref in refs if ref.startswith(layout.PINS)])
    return ", ".join(parts) or counted(len(refs), "ref")


def _merged(merge: Any) -> str:
    return next(f"{kind} {merge[kind]}" for kind in ref_kinds.versioned() if kind in merge)


def _some(what: str, names: Iterable[str], before: str = "") -> list[str]:
    known = sorted(names)
    if not known:
        return []
    if before:
        return [before + (known[0] if len(known) == 1 else counted(len(known), what))]
    return [f"{what} {known[0]}" if len(known) == 1 else counted(len(known), what)]


def _named(word: str, threads: Iterable[str], each_one: bool, more: str = "") -> list[str]:
    named = [f"thread {thread}" for thread in sorted(threads)] if each_one else _some("thread", threads)
    return [f"{word}: {item}{more}" for item in named]


def _held(remote: str, refs: Sequence[str], verbose: bool) -> list[str]:
    threads = [f"thread {thread}" for thread in sorted(_threads(refs))]
    kinds = {**layout.words(), layout.FOLDED: "archives of"}
    others = [ref for ref in refs if not layout.is_thread_ref(ref)]
    named = [f"{kinds.get(layout.namespace_of(ref), 'ref')} {_name(ref)}" for ref in others] + threads
    if not named:
        return []
    shown = named if verbose else named[:MOST_NAMED]
    more = f" and {len(named) - len(shown)} more" if len(shown) < len(named) else ""
    what = (
        "--all" if not threads else "ID… or --all" if len(named) > 1 else threads[0].removeprefix("thread ")
    )
    back = f"uwf push {remote} {what} brings {'it' if len(named) == 1 else 'them'} back"
    return [f"deleted on {remote}, kept here: {', '.join(shown)}{more}; {back}"]


def _line(change: Any) -> str:
    line = f"{TOLD[change['case']]:<9}  {_short(change['ref'])}"
    if change["case"] == "deleted-there":
        line += ": deleted there; what is here stays"
    if fork := change.get("fork"):
        whose = "your" if fork["side"] == "ours" else "their"
        line += f"; {whose} {counted(fork['steps'], 'step')} went on as thread {terminal.style(fork['thread'], 'bold')}"
    if change.get("proposal"):
        kind = ref_kinds.kind_of(change["ref"])
        group = kind.commands if kind is not None else "uwf workflow"
        line += f"; your version is kept: {group} accept {change['proposal']}"
    return line


def _listing(lines: list[str], nothing: str, verbose: bool) -> str:
    if len(lines) > MOST and not verbose:
        lines = [*lines[: MOST - 10], f"… and {len(lines) - MOST + 10} more; -v lists them"]
    return "\n".join(lines) if lines else nothing


def _threads(refs: Iterable[str]) -> set[str]:
    return {_name(ref) for ref in refs if layout.is_thread_ref(ref)}


def _name(ref: str) -> str:
    return ref.rpartition("/")[2]


def _short(ref: str) -> str:
    return (
        ref.removeprefix("refs/uwf/")
        .replace("threads/", "thread ")
        .replace("archive/", "thread ")
        .replace("paused/", "pause of thread ")
    )
