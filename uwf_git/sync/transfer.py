"""Sending refs to a remote, in one push or in groups if a forge limits the refs per push or a server refuses
many at once.

For each refspec of one ref, git scans all local and remote refs: half a minute for 5,000. A pattern is one
scan, so many refs are named by patterns that match them and nothing else here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import RemoteFailed
from uwf_git.base.text import one_line
from uwf_git.git.program import CallResult, Git, failure
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.remotes import Remote

MOST_OF_A_FORGE = 200
# Reasons to retry a push that was refused as a whole; the last are limits of administrators.
_SMALLER = (MOST_OF_A_FORGE, 20, 4)
# Up to this number, refs are named one by one with their new objects.
FEW = 50
_OBJECT = re.compile("[0-9a-f]{40}")
# Bytes of refspecs in one command line: an eighth of Linux's limit, less than macOS's.
_ROOM = 256 * 1024
_LOST = (
    "fetch first",
    "non-fast-forward",
    "stale info",
    "already exists",
    "needs force",
    "incorrect old value",
)
LOCKED = "failed to update ref"
"""The reason of a remote that cannot lock a ref, as git up to 2.49 words it."""
_EXISTS = "reference already exists"
_SIZE_LIMIT = re.compile(
    r"HTTP 413|HTTP 5\d\d|Internal Server Error|too (?:large|many|big)|more than|at once|exceed|limit|unpack",
    re.IGNORECASE,
)


class Pushed(NamedTuple):
    """A ref that the remote took and lists. `object` is None if deleted; `made`: it wasn't there before."""

    ref: str
    object: Oid | None
    made: bool = False


class Rejected(NamedTuple):
    """A ref that the remote refused. `lost`: another push was first; `deletion`: an optional deletion."""

    ref: str
    reason: str
    lost: bool = False
    deletion: bool = False


Results = dict[str, Pushed | Rejected]


def send(
    git: Git, remote: Remote, updates: Mapping[str, Oid], others: Collection[str], at_most: int | None = None
) -> Results:
    """Push refs in dependency order, at most N per push. `others` are refs not to be pushed, needed only
    beyond FEW refs. A push that is refused as a whole, perhaps for its size, is retried in smaller ones. Refs
    missing from the results did not arrive. Raises RemoteFailed if none did."""
    order = {prefix: place for place, prefix in enumerate(layout.shared())}
    waiting = sorted(updates, key=lambda name: (order[layout.namespace_of(name)], name))
    size = at_most or max(len(waiting), 1)
    results: Results = {}
    while waiting:
        group = waiting[:size]
        specs = _refspecs(group, updates, [*others, *waiting[size:], *results])
        if len(group) > 1 and sum(map(len, specs)) > _ROOM:
            size = len(group) // 2
            continue
        smaller = next((item for item in _SMALLER if item < len(group)), None)
        log.info(
            "HJC6EA6Z",
            "pushes {group} of {waiting} refs to {remote}",
            group=len(group),
            waiting=len(waiting),
            remote=remote.name,
            first=group[:10],
        )
        try:
            all_results = transfer(git, remote, specs, updates)
        except RemoteFailed as error:
            if smaller and _SIZE_LIMIT.search(error.message):
                log.warning(
                    "RMHYWXRX",
                    "{remote} failed at so many refs: tries {size} at once",
                    remote=remote.name,
                    size=smaller,
                    problem=error.message,
                )
                size = smaller
                continue
            if results:
                break
            raise
        came = {name: all_results[name] for name in group if name in all_results}
        waiting = waiting[size:]
        if reason := _refused_as_a_whole(came):
            if smaller and (len(group) > MOST_OF_A_FORGE or _SIZE_LIMIT.search(reason)):
                log.warning(
                    "SPY2CM99",
                    "{remote} refuses so many refs: tries {size} at once",
                    remote=remote.name,
                    size=smaller,
                    problem=reason,
                )
                waiting, size = [*group, *waiting], smaller
                continue
            if not any(isinstance(result, Pushed) for result in results.values()):
                came.update({name: Rejected(name, reason) for name in waiting})
                waiting = []
        results.update(came)
    return results


def remove(git: Git, remote: Remote, doomed: Mapping[str, Oid], at_most: int | None = None) -> Results:
    """Delete refs on a remote by lease, at most N per push. Raises RemoteFailed."""
    names = sorted(doomed)
    results: Results = {}
    while names:
        count = at_most or len(names)
        while (arguments := deletions({name: doomed[name] for name in names[:count]})) and (
            count > 1 and sum(map(len, arguments)) > _ROOM
        ):
            count //= 2
        results.update(transfer(git, remote, arguments))
        names = names[count:]
    return results


def replace(git: Git, remote: Remote, moves: Mapping[str, tuple[Oid, Oid]]) -> Results:
    """Replace refs on a remote by lease. `moves` has the object last seen and the new one. Raises
    RemoteFailed."""
    leases = [f"--force-with-lease={name}:{old}" for name, (old, _) in moves.items()]
    return transfer(git, remote, [*leases, *(f"{new}:{name}" for name, (_, new) in moves.items())])


def _refused_as_a_whole(came: Results) -> str:
    """Return why a remote took nothing, "" if it took some or a race was lost."""
    refused = [item for item in came.values() if isinstance(item, Rejected) and not item.lost]
    return refused[0].reason if refused and len(refused) == len(came) else ""


def _refspecs(names: Sequence[str], updates: Mapping[str, Oid], others: Collection[str]) -> list[str]:
    if len(names) <= FEW:
        return [f"{updates[name]}:{name}" for name in names]
    specs = []
    spared = sorted(others)
    for prefix in layout.shared():
        within = sorted(name for name in names if name.startswith(prefix))
        for fitting in _cover(prefix, within, [name for name in spared if name.startswith(prefix)]):
            specs.append(f"{fitting}:{fitting}" if fitting.endswith("*") else f"{updates[fitting]}:{fitting}")
    return specs


def _cover(begin: str, names: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the fewest prefixes with `*` that match all of `names` and none of `others`; a name that is a
    prefix of others stands for itself. Both are sorted and begin with `begin`."""
    if not names:
        return
    if not others:
        yield begin + "*"
        return
    first, last = min(names[0], others[0]), max(names[-1], others[-1])
    while last.startswith(first[: len(begin) + 1]) and len(begin) < len(first):
        begin = first[: len(begin) + 1]
    if names[0] == begin:
        yield begin
    after: dict[str, tuple[list[str], list[str]]] = {}
    for place, group in enumerate((names, others)):
        for name in group:
            if name != begin:
                after.setdefault(name[len(begin)], ([], []))[place].append(name)
    for character, (within, besides) in after.items():
        yield from _cover(begin + character, within, besides)


def deletions(doomed: Mapping[str, Oid]) -> list[str]:
    """Return push arguments that delete refs by lease."""
    leases = [f"--force-with-lease={name}:{oid}" for name, oid in doomed.items()]
    return [*leases, *(f":{name}" for name in doomed)]


def transfer(
    git: Git, remote: Remote, arguments: Sequence[str], objects: Mapping[str, Oid] | None = None
) -> dict[str, Pushed | Rejected]:
    """Run one `git push` and return its result per ref; of a pattern only those in `objects`. Raises
    RemoteFailed without any."""
    results = _push(git, remote, arguments, objects or {})
    # From 2.50 on git says so of a locked ref too. The second time, one that exists is refused for another reason.
    unclear = [
        name for name, item in results.items() if isinstance(item, Rejected) and item.reason == _EXISTS
    ]
    again = _push(git, remote, arguments, objects or {}) if unclear else {}
    for name in unclear:
        second = again.get(name, results[name])
        is_locked = isinstance(second, Rejected) and second.reason == _EXISTS
        results[name] = Rejected(name, LOCKED) if is_locked else second
    return results


def _push(
    git: Git, remote: Remote, arguments: Sequence[str], objects: Mapping[str, Oid]
) -> dict[str, Pushed | Rejected]:
    options = [argument for argument in arguments if argument.startswith("--")]
    specs = [argument for argument in arguments if not argument.startswith("--")]
    if not specs:  # without any, git would push what its configuration says
        return {}
    done = git.run(
        "push",
        "--progress" if git.shows_progress else "--no-progress",
        "--porcelain",
        "--no-follow-tags",
        "--no-recurse-submodules",
        *options,
        "--",
        remote.name,
        *specs,
        check=False,
    )
    results = dict(results_of(done, objects))
    if done.code != 0 and not any(isinstance(result, Rejected) for result in results.values()):
        raise failure(("push",), done)
    return results


def results_of(done: CallResult, objects: Mapping[str, Oid]) -> Iterator[tuple[str, Pushed | Rejected]]:
    """Parse `git push --porcelain`: flag, from:to, summary and reason."""
    for line in done.out.decode("utf-8", "replace").splitlines():
        flag, _, rest = line.partition("\t")
        spec, _, summary = rest.partition("\t")
        source, colon, name = spec.rpartition(":")
        there = Oid(hex=source) if _OBJECT.fullmatch(source) else objects.get(name)
        if len(flag) != 1 or not colon or (flag == "=" and there is None):
            continue
        if flag == "!":
            reason = _reason(name, summary, done.err)
            lost = any(word in summary for word in _LOST) or _lost_at_once(name, done.err)
            yield name, Rejected(name, reason, lost, deletion=source in ("", "(delete)"))
        else:
            yield name, Pushed(name, None if flag == "-" else there, made=flag == "*")


def _lost_at_once(ref: str, err: str) -> bool:
    """Return whether a ref moved between being listed and being locked, which the loser of concurrent pushes
    is told only as a failed update."""
    moved = r": (?:is at [0-9a-f]+ but expected|reference already exists|unable to resolve reference)"
    return re.search(rf"cannot lock ref '{re.escape(ref)}'{moved}", err) is not None


def _reason(name: str, summary: str, err: str) -> str:
    reason = one_line(summary.partition("(")[2].rstrip(")") or summary, 200)
    remarks = [
        line.removeprefix("remote:").strip() for line in err.splitlines() if line.startswith("remote:")
    ]
    remarks = [one_line(line, 200) for line in remarks if line]
    remarks = [line for line in remarks if name in line] or remarks  # of a hook that names the ref
    return f"{reason}: {remarks[0]}" if remarks and "hook" in reason else reason
