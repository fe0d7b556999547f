"""The hooks by which a server enforces the trust policy of a repository."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from uwf_git.plugin import Invalid, NotFound, Repository, Usage

_MARK = "# uwf remote hook"
_UPDATE, _FIRST = "update", "pre-receive"
_SCRIPT = """\
#!/bin/sh
{mark}: judges each pushed ref of uwf by the trust policy of this repository.
# As hooks/update it decides, and refuses if anything fails. As hooks/pre-receive it judges the refs of a push together,
# for hooks/update to look up, and refuses nothing.
LC_ALL=C
export LC_ALL
ordinary() {{ # REF: no name that uwf may have to do with
	case $1 in
	*[uU][wW][fF]*|*[!A-Za-z0-9._/+@=,%#-]*) return 1 ;;
	refs/heads/*|refs/tags/*|refs/notes/*) return 0 ;;
	*) return 1 ;;
	esac
}}
judge() {{ {python} -P -m uwf_git.sync.update_hook "$@"; }}
verdicts=${{GIT_DIR:-.}}/uwf/hook/$PPID
case $0 in
*pre-receive)
	rm -f "$verdicts"
	push=$(while read -r old new ref; do ordinary "$ref" || printf '%s\\n' "$old $new $ref"; done)
	if [ -n "$push" ]; then printf '%s\\n' "$push" | judge --push "$verdicts"; fi
	exit 0
	;;
esac
if ordinary "$1"; then exit 0; fi
if grep -qxF "$1 $2 $3" "$verdicts" 2>/dev/null; then exit 0; fi
judge "$1" "$2" "$3" "$verdicts"
"""


def script() -> str:
    """Return the hook, which calls this installation of uwf."""
    return _SCRIPT.format(mark=_MARK, python=shlex.quote(sys.executable))


def installed(repository: Path) -> Path:
    """Write the hook to where git runs a repository's hooks, as `update` and, unless there is another one,
    `pre-receive`; return the first's path. Raises NotFound, Usage if there is another `update`."""
    folder = repository.expanduser()
    if not (folder / "objects").is_dir() or not (folder / "HEAD").is_file():
        raise NotFound(f"{repository} is not a bare repository", "make one with: git init --bare PATH")
    path = _hooks_of(folder) / _UPDATE
    try:
        if not _is_ours(path):
            raise Usage(f"{path} is another hook", "call this one from it: uwf remote hook prints it")
        _write(path)
        if _is_ours(first := path.with_name(_FIRST)):
            _write(first)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}", "check its permissions") from None
    return path


def _hooks_of(repository: Path) -> Path:
    """Return the folder in which git looks for a bare repository's hooks, which need not exist."""
    configured = Repository(repository).config.value("core.hooksPath")
    return (repository / Path(configured).expanduser()) if configured else repository / "hooks"


def pre_receive_of_others(update: Path) -> Path | None:
    """Return the `pre-receive` hook beside an installed one if it is another's, so that no push is judged whole."""
    first = update.with_name(_FIRST)
    return None if _is_ours(first) else first


def _is_ours(path: Path) -> bool:
    return not os.path.lexists(path) or _MARK in path.read_text("utf-8", "replace")


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(script())
    aside.chmod(0o755)
    aside.replace(path)
