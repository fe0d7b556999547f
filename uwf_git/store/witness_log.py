"""The log of heads that one user has written or seen in one store, in the user's state folder.

    $XDG_STATE_HOME/uwf/witness/<hash of the store's path>.log

    $XDG_STATE_HOME/uwf/witness/<hash of a path>.at

The store's path is that without symbolic links; a path that led to it by some has the name of its log.

A log's first line has the key; each other line is a change of a ref, and ends with a keyed hash of itself and of the
line before. Lines are appended in one write under a lock, and never synced: a power cut may tear or lose the last ones.

    $XDG_STATE_HOME/uwf/witness/<hash of the store's path>.snapshot

The state after some line of the log, with a keyed hash: a process reads it and only the lines that follow. If it is not
whole, or the log has another line there, the whole log is read. Whether it can be written matters to nothing but speed.

    <git dir>/uwf/witness/<hash of the key>

In the store there are only announcements: before a ref moves, a keyed hash of its name, its old and its new object.
They show which moves without a line in the log were this user's, and prove nothing else.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from uwf_git.base import system
from uwf_git.git.fsync import ASIDE, make_folders, write_all
from uwf_git.git.libgit2 import Oid
from uwf_git.git.refs import read_file
from uwf_git.git.repository import RefMove
from uwf_git.git.sqlite_cache import boot

WROTE, SAW, UNKNOWN, UNSURE, LOST, KEPT, ACCEPTED, BORN, WRITER = "w", "s", "f", "u", "l", "k", "a", "b", "o"
GONE = "g"
"""Kinds of lines: a ref that we moved, or found explained; one that nobody is known to have moved, or nobody is sure
about; one whose head is gone, and one in order again; all that stands was accepted; a new store; another accepted
writer of announcements, instead of a ref; a head of the store that stood here before a new one."""
_MAGIC = "uwf-witness 1"
_TAIL = 16 << 10  # bytes in which the last line is looked for
_MOST = 256 << 10  # bytes of a log before it is written anew, if a quarter is enough
_FEW = 16 << 10  # bytes of lines, some 80, that each process reads before there is a new snapshot
_MOST_ANNOUNCED = 1 << 20
_MOST_LINKS = 40  # as Linux follows at most
_GONE = "-"
_SNAPSHOT = "uwf-witness-snapshot 1"
Moves = dict[str, set[str]]
"""The objects that refs were moved to, by the one where each stood, "-" for none."""
_Change = tuple[str, str, str, str]
"""The kind, ref, old and new object of a line."""


class Line(NamedTuple):
    """A change of a ref. `number` counts all lines ever, `boot` identifies the start of the machine."""

    number: int
    kind: str
    boot: str
    ref: str
    old: str
    new: str


class Witnessed(NamedTuple):
    """The state that a log describes: the objects of refs; by ref what is unexplained (UNKNOWN or UNSURE, and an object
    that `heads` lack), what was lost (an object that `heads` keep until another is known) and what is `gone` with an
    earlier store (objects); the other `writers`; number, hash and `boot` of the last line. `is_torn` if what follows it
    cannot be read. `size` is in bytes of the log, of which the snapshot covers `snapshot`."""

    heads: dict[str, str]
    unexplained: dict[str, tuple[str, str]]
    lost: dict[str, str]
    gone: dict[str, str]
    writers: set[str]
    number: int = 0
    mac: str = ""
    boot: str = ""
    is_torn: bool = False
    size: int = 0
    snapshot: int = 0


def user_state(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of a user's state of uwf, None for a user without a home."""
    named = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):  # noqa: PTH117
        return Path(named) / "uwf"
    home = environ.get("HOME") or environ.get("USERPROFILE", "")
    return Path(home) / ".local" / "state" / "uwf" if os.path.isabs(home) else None  # noqa: PTH117


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the logs, None for a user without one."""
    folder = user_state(environ)
    return folder / "witness" if folder else None


def text_of(oid: Oid | None) -> str:
    return str(oid) if oid is not None else _GONE


class WitnessLog:
    """The log of a store at a path. Methods raise OSError."""

    def __init__(self, folder: Path, git_dir: Path, private: Path) -> None:
        self._folder = folder
        self._places = _places(git_dir)
        self._place = self._places[-1]
        self.path = self._of(self._place)
        self._announced = private / "witness"
        self._key = b""

    # Opening

    def open(self, heads: Callable[[], Mapping[str, str]] = dict) -> bool:
        """Read the key; return whether the log is new, and begins with `heads`. The log of a store that was moved here
        goes on, and so do those of paths that lead here by symbolic links, and of where these led before. Of what
        cannot be joined, the first log that can be read counts."""
        if self._read_key(self.path) and not self._others() and not self._signposts():
            return False
        try:
            with self._locked():
                return self._begin_or_join(heads)
        except OSError:
            if not self._read_any_key():
                raise
            return False

    def _begin_or_join(self, heads: Callable[[], Mapping[str, str]]) -> bool:
        is_new = not self._read_key(self.path)
        for other in self._others() or (self._moved() if is_new else ()):
            is_new = not self._join(other, is_new) and is_new
        if is_new:
            self._key = os.urandom(16)
            changes = [(WRITER, path.name, _GONE, _GONE) for path in self.writers()]
            self._replace([*changes, *((SAW, ref, _GONE, oid) for ref, oid in heads().items())], 0, "")
        with suppress(OSError):  # the next process tries again
            for signpost in self._signposts():
                _put(signpost, self.path.stem.encode())
            self._signpost(self._place).unlink(missing_ok=True)
        return is_new

    def _read_any_key(self) -> bool:
        """Read the key of the log, else take the first other log of this store that can be read in its place."""
        if self._read_key(self.path):
            return True
        for other in self._others() or self._moved():
            with suppress(OSError, ValueError):
                if self._read_key(other):
                    self.path, self._place = other, _place_of(other)
                    return True
        return False

    @property
    def is_there(self) -> bool:
        """Whether there is a log to open."""
        return self._read_key(self.path) or bool(self._others())

    def _of(self, place: str, suffix: str = ".log") -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:24]}{suffix}"

    def _others(self) -> list[Path]:
        """Return the logs of other paths of this store, and of other stores that one of its paths led to."""
        logs = [self._of(place) for place in self._places]
        for place in self._places:
            with suppress(OSError):
                logs.append(self._folder / f"{_text_in(self._signpost(place))}.log")
        return [path for path in dict.fromkeys(logs) if path != self.path and path.is_file()]

    def _signposts(self) -> list[Path]:
        """Return the files of paths which don't say yet that they lead here."""
        return [path for path in map(self._signpost, self._places[:-1]) if not self._leads_here(path)]

    def _signpost(self, place: str) -> Path:
        return self._of(place, ".at")

    def _leads_here(self, signpost: Path) -> bool:
        with suppress(OSError):
            return _text_in(signpost) == self.path.stem
        return False

    def _join(self, path: Path, is_new: bool) -> bool:
        """Go on from another log, which ends if no store is at its path any more; return whether it can be read. A new
        log takes over its key."""
        other = copy.copy(self)
        other.path = path
        if not other._read_key(path):
            return False
        state = other.read()
        if is_new:
            self._key = other._key
            self._replace(_standing(state), state.number, state.mac, state.boot)
        else:
            self._append([*_standing(state), (WRITER, other._name, _GONE, _GONE)])
        with suppress(OSError, ValueError):
            place = _place_of(path)
            if not os.path.lexists(place) or os.path.realpath(place) != place:
                path.unlink()
                for beside in (_before(path), other._snapshot_path):
                    beside.unlink(missing_ok=True)
        return True

    def _read_key(self, path: Path) -> bool:
        """Read a log's key; return whether there is one. Raises OSError if there may be."""
        for candidate in (path, _before(path)):
            with suppress(FileNotFoundError, ValueError, IndexError), _regular(candidate) as file:
                self._key = bytes.fromhex(_header(file.readline(_TAIL).decode())[0])
                return True
        return False

    def _moved(self) -> list[Path]:
        """Return the log of a store that was moved: one that the store has announcements of, and whose path is gone."""
        names = {path.name for path in _files(self._announced)}
        for other in sorted(_files(self._folder)) if names else ():
            with suppress(OSError, ValueError):
                if other.suffix != ".log" or not self._read_key(other) or self._name not in names:
                    continue
                if not os.path.lexists(_place_of(other)):
                    return [other]
        return []

    @property
    def _name(self) -> str:
        return hashlib.sha256(self._key).hexdigest()[:16]

    # Reading

    @property
    def size(self) -> int:
        """The bytes of the log, 0 if it is gone."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0

    def read(self) -> Witnessed:
        """Return the state after the lines whose chain holds."""
        state, data = self._begin()
        number, mac, at_boot, size, torn = state.number, state.mac, state.boot, state.size, state.is_torn
        for raw in data.splitlines(keepends=True):
            try:
                line, mac = self._parsed(raw.decode(), mac)
            except ValueError:
                torn = True
                break
            _fold(line, state)
            number, at_boot, size = line.number, line.boot, size + len(raw)
        return state._replace(number=number, mac=mac, boot=at_boot, is_torn=torn, size=size)

    def _begin(self) -> tuple[Witnessed, bytes]:
        """Return the state of the snapshot, else that before the log's first line, and the lines that follow."""
        for path in (self.path, _before(self.path)):
            with suppress(FileNotFoundError), _regular(path) as file:
                header = file.readline()
                if not header.startswith(_MAGIC.encode()):
                    continue
                if (snapshot := self._snapshot(os.fstat(file.fileno()).st_size)) is not None:
                    end = f" {snapshot.mac}\n".encode()
                    file.seek(snapshot.size - len(end))
                    if file.read(len(end)) == end:
                        return snapshot, file.read()
                    file.seek(len(header))
                with suppress(ValueError):
                    number, mac = _end(header.decode())
                    return _nothing()._replace(number=number, mac=mac, size=len(header)), file.read()
                break
        return _nothing()._replace(is_torn=True), b""

    def _snapshot(self, size: int) -> Witnessed | None:
        """Return the state in the snapshot, if that is whole, and no larger than a log of some `size` needs."""
        with suppress(OSError, ValueError), _regular(self._snapshot_path, system.O_NOFOLLOW) as file:
            most = size + _TAIL
            if len(data := file.read(most + 1)) > most:
                return None
            mac, _, text = data.decode().partition("\n")
            if text.startswith(_SNAPSHOT) and mac == self._mac(text):
                _, rest, *lines = text.split("\n")
                unexplained, lost, gone, writers, number, end, at_boot, size = json.loads(rest)
                heads = dict(zip([line[41:] for line in lines], [line[:40] for line in lines], strict=True))
                unexplained = {ref: (kind, oid) for ref, (kind, oid) in unexplained.items()}
                state = Witnessed(heads, unexplained, lost, gone, set(writers), number, end, at_boot)
                return state._replace(size=size, snapshot=size)
        return None

    @property
    def _snapshot_path(self) -> Path:
        return self.path.with_suffix(".snapshot")

    def _parsed(self, text: str, before: str) -> tuple[Line, str]:
        body, _, mac = text.removesuffix("\n").rpartition(" ")
        if not text.endswith("\n") or mac != self._mac(f"{before} {body}"):
            raise ValueError(text)
        number, kind, boot, ref, old, new = body.split(" ")
        return Line(int(number), kind, boot, ref, old, new), mac

    def knows(self, oid: str) -> bool:
        """Return whether this user has written or seen an object in any store."""
        wanted = f" {oid} ".encode()
        for path in _files(self._folder):
            if path.suffix != ".log":
                continue
            with suppress(OSError), _regular(path) as file:
                for line in file.read().splitlines():
                    if wanted in line and line.split(b" ")[1:2] in ([b"w"], [b"s"]):
                        return True
        return False

    # Writing

    def append(self, changes: Iterable[_Change]) -> None:
        """Append lines: kind, ref, old and new object. Nothing is appended if there is no space for all."""
        with self._locked():
            self._append(changes)

    def _append(self, changes: Iterable[_Change]) -> None:
        number, mac = self._last()
        lines = [*_numbered(changes, number)]
        data = "".join(self._chained(lines, mac)).encode()
        descriptor = system.open_file(self.path, os.O_WRONLY | os.O_APPEND | system.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, data)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def _last(self) -> tuple[int, str]:
        """Return the number and hash of the last line, after cutting off what was torn."""
        with suppress(OSError, ValueError, IndexError), _regular(self.path) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - _TAIL))
            *_, before, last = ["", *file.read().decode().splitlines(keepends=True)]
            if last.startswith(_MAGIC):
                return _end(last)
            line, mac = self._parsed(last, _end(before)[1])
            return line.number, mac
        state = self.read()
        return self._replace(_standing(state), state.number, state.mac, state.boot)

    def _chained(self, lines: Sequence[Line], mac: str) -> Iterator[str]:
        for line in lines:
            body = " ".join(map(str, line))
            mac = self._mac(f"{mac} {body}")
            yield f"{body} {mac}\n"

    def compact(self, state: Witnessed) -> None:
        """Write the log anew without what later lines have replaced, if that is worth it, or without what cannot be
        read. The chain goes on: the first line has the number and the hash of the last one before. Else write a
        snapshot, if many lines follow the one that is there. Raises nothing: what fails is only slower to read."""
        is_long = state.size >= max(_MOST, 800 * len(state.heads))
        with suppress(OSError):
            if state.is_torn or is_long:
                with self._locked():
                    if self.read().number == state.number:  # else another process has appended lines
                        self._replace(_standing(state), state.number, state.mac, state.boot)
            elif state.size - state.snapshot > max(_FEW, 10 * len(state.heads)):
                with self._locked():
                    self._write_snapshot(state)

    def _write_snapshot(self, state: Witnessed) -> None:
        parts = (state.unexplained, state.lost, state.gone, sorted(state.writers))
        lines = [_SNAPSHOT, json.dumps([*parts, state.number, state.mac, state.boot, state.size])]
        lines += [f"{oid} {ref}" for ref, oid in state.heads.items()]
        text = "\n".join(lines)
        _put(self._snapshot_path, f"{self._mac(text)}\n{text}".encode())

    def _replace(
        self, changes: Sequence[_Change], number: int, mac: str, at_boot: str = ""
    ) -> tuple[int, str]:
        header = f"{_MAGIC} {self._key.hex()} {number} {mac or _GONE} {json.dumps(self._place)}\n"
        lines = [line._replace(boot=at_boot or line.boot) for line in _numbered(changes, number)]
        written = [header, *self._chained(lines, mac or _GONE)]
        _put(self.path, "".join(written).encode(), before=_before(self.path))
        return _end(written[-1])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = system.open_file(
            self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, 0o600
        )
        try:
            system.lock(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def _mac(self, text: str) -> str:
        data = text.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(data, key=self._key, digest_size=16).hexdigest()

    # Announcements

    def announce(self, moves: Sequence[RefMove]) -> None:
        """Note in the store that these moves are ours, before they are made."""
        data = "".join(f"{self._sign(name, text_of(old), text_of(new))}\n" for name, old, new in moves)
        path = self._announced / self._name
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | system.O_NONBLOCK | system.O_CLOEXEC
        try:
            descriptor = system.open_file(path, flags, 0o644)
        except FileNotFoundError:
            make_folders(self._announced)
            descriptor = system.open_file(path, flags, 0o644)
        try:
            write_all(descriptor, data.encode())
            if os.fstat(descriptor).st_size > _MOST_ANNOUNCED:
                with suppress(OSError), self._locked():  # else the next process does
                    _put(path, path.read_bytes()[-_MOST_ANNOUNCED // 2 :].partition(b"\n")[2], 0o644)
        finally:
            os.close(descriptor)

    def _sign(self, ref: str, old: str, new: str) -> str:
        return f"{old} {new} {self._mac(f'{ref} {old} {new}')}"

    def announced(self) -> dict[str, int]:
        """Return the announcements of this user, each with its last place."""
        with suppress(OSError):
            lines = _text_in(self._announced / self._name).splitlines()
            return {line: place for place, line in enumerate(lines)}
        return {}

    def is_announced(self, announced: Mapping[str, int], ref: str, old: str, new: str) -> bool:
        """Return whether this user announced to move a ref from an object to another, and not back since; from ""
        means from any."""
        if not old:
            return any(line == self._sign(ref, line.partition(" ")[0], new) for line in _to(announced, new))
        place = announced.get(self._sign(ref, old, new))
        return place is not None and not any(
            announced[line] > place and line == self._sign(ref, line.partition(" ")[0], old)
            for line in _to(announced, old)
        )

    def is_deleted(self, announced: Mapping[str, int], ref: str, known: str) -> bool:
        """Return whether this user announced to move a ref on from an object, and at last to delete it."""
        if not any(line == self._sign(ref, line.partition(" ")[0], _GONE) for line in _to(announced, _GONE)):
            return False
        moves = [
            move
            for line in sorted(announced, key=announced.__getitem__)
            if len(move := line.split(" ")[:2]) == 2 and line == self._sign(ref, *move)
        ]
        return moves[-1][1] == _GONE and any(known in move for move in moves)

    def writers(self) -> Iterator[Path]:
        """Yield the files of other users' and machines' announcements, which nobody can check here."""
        return (path for path in _files(self._announced) if path.name != self._name and "." not in path.name)

    def announced_by_others(self, writers: Collection[str]) -> tuple[Moves, Moves]:
        """Return the moves that other users and machines announced: the accepted writers, and the rest."""
        accepted: Moves = {}
        rest: Moves = {}
        for path in self.writers():
            moves = accepted if path.name in writers else rest
            with suppress(OSError):
                for line in _text_in(path).splitlines():
                    old, _, new = line.rpartition(" ")[0].partition(" ")
                    moves.setdefault(old, set()).add(new)
        return accepted, rest


def _to(announced: Iterable[str], new: str) -> Iterator[str]:
    return (line for line in announced if f" {new} " in line)


def after(state: Witnessed, changes: Iterable[_Change]) -> Witnessed:
    """Change the state as lines of the log would; return it."""
    for line in _numbered(changes, state.number):
        _fold(line, state)
    return state


def _nothing() -> Witnessed:
    return Witnessed({}, {}, {}, {}, set())


def _fold(line: Line, state: Witnessed) -> None:
    heads, unexplained, lost, gone, writers = state[:5]
    match line.kind:
        case "b":
            for item in (heads, unexplained, lost):
                item.clear()
            return
        case "a":
            for item in (unexplained, lost, gone):
                item.clear()
            return
        case "k":
            for item in (unexplained, lost, gone):
                item.pop(line.ref, None)
            return
        case "g":
            gone[line.ref] = line.old
            return
        case "o":
            writers.add(line.ref)
            return
        case "l":  # what stands in its place counts as known once this user writes on it
            lost.setdefault(line.ref, line.old)
            return
        case "u" | "f":
            unexplained[line.ref] = line.kind, line.new
            return
    if line.new == _GONE:
        heads.pop(line.ref, None)
    else:
        heads[line.ref] = line.new


def _numbered(changes: Iterable[_Change], number: int) -> Iterator[Line]:
    for at, (kind, ref, old, new) in enumerate(changes, number + 1):
        yield Line(at, kind, str(boot()), ref, old, new)


def _standing(state: Witnessed) -> list[_Change]:
    """Return the changes that describe a state."""
    heads = state.heads
    changes = [(SAW, ref, _GONE, oid) for ref, oid in heads.items()]
    changes += [(kind, ref, _GONE, oid) for ref, (kind, oid) in state.unexplained.items()]
    changes += [(WRITER, writer, _GONE, _GONE) for writer in sorted(state.writers)]
    changes += [(GONE, ref, oid, _GONE) for ref, oid in state.gone.items()]
    return changes + [(LOST, ref, oid, heads.get(ref, _GONE)) for ref, oid in state.lost.items()]


def _end(text: str) -> tuple[int, str]:
    """Return the number and hash that a first or other line leaves for the next. Raises ValueError."""
    if text.startswith(_MAGIC):
        _, number, mac, _ = _header(text)
        return int(number), mac
    return int(text.partition(" ")[0]), text.rstrip("\n").rpartition(" ")[2]


def _header(text: str) -> tuple[str, str, str, str]:
    """Return the key, number, hash and path in a first line. Raises ValueError."""
    if not text.startswith(f"{_MAGIC} "):
        raise ValueError(text)
    key, number, mac, place = text.removeprefix(f"{_MAGIC} ").rstrip("\n").split(" ", 3)
    return key, number, mac, json.loads(place)


def _place_of(path: Path) -> str:
    """Return the path in a log's first line. Raises OSError, and ValueError."""
    with _regular(path) as file:
        return _header(file.readline(_TAIL).decode())[3]


def _places(path: Path) -> list[str]:
    """Return the absolute path as it is named, then each that a symbolic link in it leads on to; the last has none."""
    places = [os.path.abspath(path)]  # noqa: PTH100
    for _ in range(_MOST_LINKS):
        at = Path(places[-1])
        link = next((parent for parent in (*reversed(at.parents), at) if parent.is_symlink()), None)
        if link is None:
            break
        target = os.path.normpath(link.parent / os.readlink(link))  # noqa: PTH115
        places.append(os.path.normpath(Path(target) / at.relative_to(link)))
    real = os.path.realpath(path)
    return [*(place for place in dict.fromkeys(places) if place != real), real]


def _regular(path: Path, flags: int = 0) -> BinaryIO:
    """Open a regular file: a pipe would be waited for, and a device may have no end. Raises OSError."""
    descriptor = system.open_file(path, os.O_RDONLY | system.O_NONBLOCK | system.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _text_in(path: Path) -> str:
    """Return the text of a regular file, "" for none. Raises OSError."""
    return (read_file(path) or b"").decode(errors="replace")


def _put(path: Path, data: bytes, mode: int = 0o600, before: Path | None = None) -> None:
    """Replace a file, which goes to `before`: a power cut may leave the new one empty. The caller holds the lock, so
    this removes what a killed process left. Raises OSError, and then leaves nothing."""
    aside = path.with_name(f"{path.name}{ASIDE}")
    aside.unlink(missing_ok=True)
    descriptor = system.open_file(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, mode)
    try:
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
        if before is not None:
            with suppress(OSError):
                path.replace(before)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def _before(path: Path) -> Path:
    return path.with_suffix(".before")


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
