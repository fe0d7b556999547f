"""Log files, written and read.

    <folder>/2026-01-31.jsonl      a day's records in UTC, a JSON object a line
    <folder>/2026-01-31.2.jsonl    the rest of that day, once the file before had LARGEST bytes

Files are never renamed, so several processes can append, one write per line. Whoever begins a file removes
those older than DAYS, and the oldest beyond MOST. An unwritable log is reported once and fails nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from uwf_git.base import log, system
from uwf_git.base.text import encodable, one_line, shortened

LARGEST = 4 << 20
NO_FOLDER = "it is not a folder; move what is there away"
MOST = 16
DAYS = 14
_DAY = 24 * 60 * 60
_YEAR_10000 = 253_402_300_800_000
_NAME = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.([1-9]\d{0,5}))?\.jsonl", re.ASCII)
_LONGEST = 2000  # characters of a text in a record
_IN_CONTENT = 300
_DEEP = 4
_PIECE = 1 << 16

Record = Mapping[str, Any]
"""`tag`, `level`, `content`, `timestamp` in Unix milliseconds, `thread` and `role` or None, `pid`; then the fields."""

Clean = Callable[[Any], Any]
"""Takes the secrets out of a JSON value."""


def open_log(
    level: int,
    folder: Path,
    clean: Clean,
    show: Callable[[Record], None] | None,
    warn: Callable[[str], None],
) -> None:
    """Start this process's log: records from `level` on go to `folder`, made if its parent exists, and to
    `show`. `warn` is called once if it cannot be written. A process started for a step adds its thread and
    role."""
    files = _Files(folder, warn)
    level_names = {number: name for name, number in log.LEVELS.items()}
    of_step = {"thread": os.environ.get("UWF_THREAD"), "role": os.environ.get("UWF_ROLE")}

    def write(at: int, tag: str, content: str, fields: dict[str, object]) -> None:
        try:
            values = clean({name: _plain(value) for name, value in {**of_step, **fields}.items()})
            texts = {name: one_line(_text(value), _IN_CONTENT) for name, value in values.items()}
            record = {
                "tag": tag,
                "level": level_names[at],
                "content": content.format_map(texts),
                "timestamp": time.time_ns() // 1_000_000,
                "thread": values.pop("thread"),
                "role": values.pop("role"),
                "pid": os.getpid(),
                **_cut(values),
            }
            files.append(record)
            if show is not None:
                with contextlib.suppress(OSError, ValueError):
                    show(record)
        except Exception as error:  # whatever is wrong with a log, the command is not to fail of it
            files.trouble(repr(error))

    log.begin(level, write)


class _Files:
    """Appends records to the day's newest file."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._warned = False
        self._day = ""
        self._file = -1
        self._lock = threading.Lock()

    def append(self, record: Record) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        data = encodable(line).encode() + b"\n"
        try:
            with self._lock:
                self._into(_day(record["timestamp"] / 1000))
                # The disk is full: start a new line.
                if self._file >= 0 and os.write(self._file, data) < len(data):
                    os.write(self._file, b"\n")
        except OSError as error:
            self.trouble(error.strerror or str(error))

    def trouble(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"the log in {self._folder} cannot be written: {reason}")

    def _into(self, day: str) -> None:
        if self._file >= 0:
            status = os.fstat(self._file)
            if day == self._day and status.st_size < LARGEST and status.st_nlink:
                return
            os.close(self._file)
            self._file = -1
        if not self._folder.parent.is_dir():
            return  # no store yet
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise OSError(NO_FOLDER) from None
        known = [path for path in _files(self._folder) if path.name.startswith(day)]
        path = known[-1] if known else self._folder / f"{day}.jsonl"
        if known and path.stat().st_size >= LARGEST:
            path = self._folder / f"{day}.{_place(path)[1] + 1}.jsonl"
        begins = not path.exists()
        self._file = _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._day = day
        if begins:
            self._remove_old()
        elif (size := os.fstat(self._file).st_size) and system.read_at(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # a process was killed in the middle of a line

    def _remove_old(self) -> None:
        paths = _files(self._folder)
        oldest = _day(time.time() - DAYS * _DAY)
        for number, path in enumerate(reversed(paths)):
            if number >= MOST or _place(path)[0] < oldest:
                path.unlink(missing_ok=True)


def newest_first(folder: Path) -> Iterator[Record]:
    """Yield a folder's records, newest first, skipping incomplete ones."""
    for path in reversed(_files(folder)):
        for line in _lines_backwards(path):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and _is_record(record):
                yield record


def _is_record(value: Mapping[str, Any]) -> bool:
    texts = all(isinstance(value.get(name), str) for name in ("tag", "level", "content"))
    named = all(isinstance(value.get(name), str | None) for name in ("thread", "role"))
    when = value.get("timestamp")
    return texts and named and type(when) is int and 0 <= when < _YEAR_10000


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        file = os.fdopen(_opened(path, os.O_RDONLY), "rb")
    except OSError:
        return
    with file:
        at = file.seek(0, os.SEEK_END)
        rest = b""
        while at > 0:
            size = min(_PIECE, at)
            at -= size
            file.seek(at)
            first, *whole = (file.read(size) + rest).split(b"\n")
            yield from reversed(whole)
            rest = first
        yield rest


def _opened(path: Path, flags: int) -> int:
    try:
        descriptor = system.open_file(
            path, flags | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_CLOEXEC, 0o600
        )
    except OSError as error:
        if not path.is_symlink():
            raise
        raise OSError(f"{path.name} is a link; move it away") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a file; move what is there away")
    return descriptor


def _files(folder: Path) -> list[Path]:
    try:
        paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(paths, key=_place)


def _place(path: Path) -> tuple[str, int]:
    named = _NAME.fullmatch(path.name)
    assert named is not None
    return named[1], int(named[2] or 1)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _plain(value: object, deep: int = _DEEP) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if deep and isinstance(value, Mapping):
        return {str(name): _plain(item, deep - 1) for name, item in value.items()}
    if deep and isinstance(value, list | tuple | Set):
        return [_plain(item, deep - 1) for item in value]
    return str(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(value, _LONGEST)
    if isinstance(value, list):
        return [_cut(item) for item in value[:100]]
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    return value
