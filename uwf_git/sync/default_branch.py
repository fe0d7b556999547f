"""A default branch for repositories of threads, so that a plain clone or a forge shows a page. It is made if it is
asked for, on a remote without branches, under the name that its HEAD has: a remote may be that of a project, whose
branches are the project's.

    refs/heads/<HEAD's branch>      a commit without parents, with a README.md

The commit is always the same, so concurrent pushes agree. It is never moved.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import RemoteFailed
from uwf_git.git.libgit2 import reference_is_valid_name
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store.remotes import Remote
from uwf_git.sync.exchange import Exchange
from uwf_git.sync.tracking import list_refs, listed_lines
from uwf_git.sync.transfer import Pushed, Rejected, deletions, transfer

HEADS = "refs/heads/"
USUAL = ("main", "master")
_NOT_TOLD = "uwf-not-told"
_WHO = "uwf <uwf@agents.invalid> 1767225600 +0000"
_README = """\
# Threads

This repository holds runs of workflows, kept by uwf-git as git histories: a run is a thread, a step of it a commit.
They are on no branch but under `refs/uwf/`, which `git clone` leaves out. This page is all there is on this branch.

## With uwf

```sh
uwf clone URL           # the address of this repository
uwf thread list --all
```

## With plain git

In a clone of this repository:

```sh
git fetch origin '+refs/uwf/*:refs/uwf/*'
git for-each-ref refs/uwf
git log -p refs/uwf/threads/ID -- '*README.md'    # what people read of a thread
```

| ref | what |
|---|---|
| `refs/uwf/threads/ID` | a thread that goes on, at its last step |
| `refs/uwf/archive/ID` | a thread that has ended, with how and why |
| `refs/uwf/workflows/NAME` | the newest version of a workflow |
| `refs/uwf/folded/MONTH` | what ended in a month, folded into one ref |

Never force these refs: a push of `uwf` keeps both sides where two went on with one thread.

## This branch

`uwf` made it since there was none, and doesn't touch it again. Whoever wants something else here replaces it with
`git push --force`, or deletes it; nothing depends on it.
"""


class DefaultBranch(NamedTuple):
    """The branch that was made, below refs/heads/, and its commit."""

    branch: str
    commit: str


def make(exchange: Exchange) -> DefaultBranch | None:
    """Make the page on a remote, None if that has branches. Moves a ref of the remote, none here. Raises RemoteFailed
    if it refuses."""
    (_, remote, git), repository = exchange, exchange.repository
    if list_refs(git, repository, remote, branches=True).branches:
        return None
    commit = page(repository)
    default = _branch(git, remote)
    for branch in [default] if default else USUAL:
        result = _push(git, remote, HEADS + branch, [f"{commit}:{HEADS}{branch}"])
        if not isinstance(result, Pushed):
            raise RemoteFailed(
                f"{remote.name} refuses {branch}: {result.reason if result else 'no answer'}",
                "make a default branch there by hand",
            )
        if default or _leads_somewhere(git, remote):
            return DefaultBranch(branch, str(commit))
        _push(git, remote, HEADS + branch, deletions({HEADS + branch: commit}))
    raise RemoteFailed(f"the HEAD of {remote.name} names another branch", "make it there by hand")


def _push(git: Git, remote: Remote, ref: str, arguments: list[str]) -> Pushed | Rejected | None:
    return transfer(git, remote, arguments).get(ref)


def _leads_somewhere(git: Git, remote: Remote) -> bool:
    lines = listed_lines(git, "ls-remote", "--quiet", "--", remote.name, "HEAD")
    return any(name == "HEAD" for _, name in lines)


def page(repository: Repository) -> Oid:
    """Return the page's commit, stored without a ref."""
    tree = repository.write_folder({"README.md": _README.encode()})
    return repository.write_raw_commit(
        f"tree {tree}\nauthor {_WHO}\ncommitter {_WHO}\n\nWhat this repository is\n".encode()
    )


def _branch(git: Git, remote: Remote) -> str | None:
    """Return the branch that an unborn HEAD names. Only protocol version 2 tells it, and only to a clone;
    else None."""
    import tempfile

    url = git.run("remote", "get-url", "--push", remote.name).out.decode("utf-8", "surrogateescape").strip()
    with tempfile.TemporaryDirectory(prefix="uwf-landing-") as folder:
        path = Path(folder) / "clone.git"
        git.run(
            *(
                "-c",
                f"init.defaultBranch={_NOT_TOLD}",
                "clone",
                "--quiet",
                "--bare",
                "--no-tags",
                "--template=",
            ),
            *("--origin", "landing", "--", url, str(path)),
            bounded=True,
        )
        head = (path / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
    name = head.removeprefix(f"ref: {HEADS}")
    if name in (head, _NOT_TOLD) or not reference_is_valid_name(HEADS + name):
        return None
    return name
