"""How refs get to a remote: in one push, or in groups where a forge limits what one push may name or a server
refuses so many at once.

git looks through all its refs and all of the remote's for each refspec that names one ref, which takes half a minute
for 5,000 of them; for a pattern it looks through them once. So many refs are named by patterns that fit them and
nothing else that is here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import RemoteFailed
from uwf_git.base.text import one_line
from uwf_git.git.program import Done, Git, failure
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.remotes import Remote

MOST_OF_A_FORGE = 200
# What a push that was refused as a whole is tried again with; the last are limits that administrators set.
_SMALLER = (MOST_OF_A_FORGE, 20, 4)
# Up to so many are named one by one, with the object that each is to point at.
FEW = 50
_OBJECT = re.compile("[0-9a-f]{40}")
# The bytes of refspecs that one command line may hold: an eighth of what Linux allows, less than macOS does.
_ROOM = 256 * 1024
_LOST = (
    "fetch first",
    "non-fast-forward",
    "stale info",
    "already exists",
    "needs force",
    "incorrect old value",
)
_TOO_MUCH = re.compile(
    r"HTTP 413|HTTP 5\d\d|Internal Server Error|too (?:large|many|big)|more than|at once|exceed|limit|unpack",
    re.IGNORECASE,
)


class Pushed(NamedTuple):
    """A ref that the remote took and lists. `object` is where it is now; None where it was deleted."""

    ref: str
    object: Oid | None


class Rejected(NamedTuple):
    """A ref that the remote did not take. `lost`: somebody else moved it there first; `deletion`: it was
    to be deleted, and nothing depends on that."""

    ref: str
    reason: str
    lost: bool = False
    deletion: bool = False


Results = dict[str, Pushed | Rejected]


def send(
    git: Git, remote: Remote, updates: Mapping[str, Oid], others: Collection[str], at_most: int | None = None
) -> Results:
    """Pushes refs, what stands on something after it, at most so many with one push. `others` are refs that are
    here and not to be pushed; for no more than FEW refs they need not be known. A push that the remote refuses as a
    whole, as it may do for its size, is tried again in smaller ones. What isn't among the results did not get there.
    Raises RemoteFailed where nothing did."""
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
        smaller = next((each for each in _SMALLER if each < len(group)), None)
        log.info(
            "HJC6EA6Z",
            "pushes {group} of {waiting} refs to {remote}",
            group=len(group),
            waiting=len(waiting),
            remote=remote.name,
            first=group[:10],
        )
        try:
            found = transfer(git, remote, specs, updates)
        except RemoteFailed as error:
            if smaller and _TOO_MUCH.search(error.message):
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
        came = {name: found[name] for name in group if name in found}
        waiting = waiting[size:]
        if reason := _refused_as_a_whole(came):
            if smaller and (len(group) > MOST_OF_A_FORGE or _TOO_MUCH.search(reason)):
                log.warning(
                    "SPY2CM99",
                    "{remote} refuses so many refs: tries {size} at once",
                    remote=remote.name,
                    size=smaller,
                    problem=reason,
                )
                waiting, size = [*group, *waiting], smaller
                continue
            if not any(isinstance(each, Pushed) for each in results.values()):
                came.update({name: Rejected(name, reason) for name in waiting})
                waiting = []
        results.update(came)
    return results


def remove(git: Git, remote: Remote, doomed: Mapping[str, Oid], at_most: int | None = None) -> Results:
    """Deletes refs on a remote by lease, at most so many with one push. Raises RemoteFailed."""
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
    """Puts refs on a remote in the place of what they don't continue, by lease: only where that still is what was last
    seen. `moves` are names with what was seen there, and what is to be there. Raises RemoteFailed."""
    leases = [f"--force-with-lease={name}:{old}" for name, (old, _) in moves.items()]
    return transfer(git, remote, [*leases, *(f"{new}:{name}" for name, (_, new) in moves.items())])


def _refused_as_a_whole(came: Results) -> str:
    """Why a remote took none of what it was asked to; "" where it took some, or where it was a lost race."""
    refused = [each for each in came.values() if isinstance(each, Rejected) and not each.lost]
    return refused[0].reason if refused and len(refused) == len(came) else ""


def _refspecs(names: Sequence[str], updates: Mapping[str, Oid], others: Collection[str]) -> list[str]:
    """The refspecs that push these refs and none of `others`."""
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
    """The fewest beginnings, each with a `*`, that all of `names` have and none of `others`; a name that others begin
    with stands for itself. Both are sorted, and all begin with `begin`."""
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
    """The arguments of a push that deletes refs by lease: only what is still where it was last seen."""
    leases = [f"--force-with-lease={name}:{oid}" for name, oid in doomed.items()]
    return [*leases, *(f":{name}" for name in doomed)]


def transfer(
    git: Git, remote: Remote, arguments: Sequence[str], objects: Mapping[str, Oid] | None = None
) -> dict[str, Pushed | Rejected]:
    """One `git push` of options and refspecs, and what it says of each ref; of a pattern only those that
    `objects` names, with where they are here. Raises RemoteFailed where it says nothing of any."""
    options = [each for each in arguments if each.startswith("--")]
    specs = [each for each in arguments if not each.startswith("--")]
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
    results = dict(results_of(done, objects or {}))
    if done.code != 0 and not any(isinstance(each, Rejected) for each in results.values()):
        raise failure(("push",), done)
    return results


def results_of(done: Done, objects: Mapping[str, Oid]) -> Iterator[tuple[str, Pushed | Rejected]]:
    """What `git push --porcelain` says of each ref: flag, from:to, summary and reason."""
    for line in done.out.decode("utf-8", "replace").splitlines():
        flag, _, rest = line.partition("\t")
        spec, _, summary = rest.partition("\t")
        source, colon, name = spec.rpartition(":")
        there = Oid(hex=source) if _OBJECT.fullmatch(source) else objects.get(name)
        if len(flag) != 1 or not colon or (flag == "=" and there is None):
            continue
        if flag == "!":
            reason = _reason(summary, done.err)
            lost = any(word in summary for word in _LOST) or _lost_at_once(name, done.err)
            yield name, Rejected(name, reason, lost, deletion=source in ("", "(delete)"))
        else:
            yield name, Pushed(name, None if flag == "-" else there)


def _lost_at_once(ref: str, err: str) -> bool:
    """Whether the remote says that a ref moved between its being listed and its being locked: of two pushes at the same
    time one comes to know only then, and is told no more than that its update failed."""
    moved = r": (?:is at [0-9a-f]+ but expected|reference already exists|unable to resolve reference)"
    return re.search(rf"cannot lock ref '{re.escape(ref)}'{moved}", err) is not None


def _reason(summary: str, err: str) -> str:
    reason = one_line(summary.partition("(")[2].rstrip(")") or summary, 200)
    said = [line.removeprefix("remote:").strip() for line in err.splitlines() if line.startswith("remote:")]
    said = [one_line(line, 200) for line in said if line]
    return f"{reason}: {said[0]}" if said and "hook" in reason else reason
