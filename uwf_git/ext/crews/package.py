"""A crew's package: its files from a ZIP, a folder or git.

Packages are untrusted: names are checked before reading, sizes before unpacking, and nothing is written to
disk. Hidden files (`.git`, `.env`, `.DS_Store`) are ignored, so a folder and its ZIP are the same package.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.crews.draft import InvalidPackage, PackageFinding
from uwf_git.plugin import (
    BMAD,
    MOUNT_PLACEHOLDERS,
    OWN_FORM,
    PACKAGE_MOUNT,
    PROJECT_MOUNT,
    STATE_MOUNT,
    Invalid,
    NotFound,
    one_line,
    stands_for_git,
    system,
    unreadable_document,
)

if TYPE_CHECKING:
    import zipfile

SUFFIX = ".bmad"
MANIFESTS = {BMAD: "bmad.json", OWN_FORM: "crew.yaml"}
"""The file at the top that a package of each form is known by."""
CLASSIC = (".yaml", ".yml", ".xml")
"""How the names of workflows and scripts of the classic form end."""

MAX_ARCHIVE = 64 << 20
MAX_FILES = 5_000
MAX_FILE = 16 << 20
MAX_TOTAL = 64 << 20
MAX_RATIO = 200
"""How much larger than its part of the archive a file may be, beyond the first MiB."""
_UNSUSPECTED = 1 << 20
_MOST_NAME = 255
_MOST_PATH = 1_000
_MOST_PARTS = 16  # verify bounds how deep a tree is
_MOST_SHOWN = 200

_UNSEEN = ("__MACOSX", "Thumbs.db", "desktop.ini")
_DRIVE = re.compile(r"[A-Za-z]:(?:[/\\]|$)")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1 | 0x40 | 0x2000


class Package(NamedTuple):
    """`name` is the file's or folder's without suffix; `archive` the ZIP's bytes, if it was one."""

    name: str
    files: Mapping[str, bytes]
    archive: bytes | None = None

    def form(self) -> str:
        """BMAD or OWN, by manifest. Raises InvalidPackage for none or both."""
        forms = [form for form, manifest in MANIFESTS.items() if manifest in self.files]
        if len(forms) == 1:
            return forms[0]
        if forms:
            raise _refused(
                self.name, "two-manifests", "it has both bmad.json and crew.yaml", "keep one of them"
            )
        inside = sorted(
            path for path in self.files if path.count("/") == 1 and path.split("/")[1] in MANIFESTS.values()
        )
        hint = (
            f"it is in {one_line(inside[0], 80)}: give that folder, or pack what is in it, not the folder itself"
            if inside
            else "a package has one of the two at its top"
        )
        raise _refused(self.name, "no-manifest", "it has neither bmad.json nor crew.yaml", hint)


def read_package(path: Path) -> Package:
    """Read a ZIP, a folder, or the folder of a manifest. Raises NotFound, Invalid, InvalidPackage."""
    shown = one_line(str(path))
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no package {shown}", "check the path") from None
    except (OSError, ValueError) as error:
        raise unreadable_document(shown, error) from None
    if stat.S_ISDIR(mode):
        return _read_folder(path)
    if not stat.S_ISREG(mode):
        raise Invalid(f"{shown} is not a regular file", "a package is a .bmad file or a folder")
    if path.name in MANIFESTS.values():
        return _read_folder(path.parent)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ARCHIVE + 1)
    except OSError as error:
        raise unreadable_document(shown, error) from None
    return read_archive(data, path.name)


def read_archive(data: bytes, name: str) -> Package:
    """Read a ZIP. Raises InvalidPackage."""
    import zipfile

    name = _without_suffix(name)
    _check_archive(data, name)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data), metadata_encoding="utf-8")
    except UnicodeDecodeError:
        raise _refused(
            name, "bad-encoding", "a name in the archive is not UTF-8", "pack it again with names in UTF-8"
        ) from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        raise _refused(
            name, "bad-archive", f"the ZIP cannot be read: {one_line(str(error), 120)}", _REPACK
        ) from None
    entries = archive.infolist()
    findings = [*_entry_findings(entries), *_overlaps(entries)]
    names = [entry.orig_filename for entry in entries]
    findings += check_names(name for name in names if not name.endswith("/"))
    folders = {name.rstrip("/") for name in names if name.endswith("/")}
    findings += [
        finding
        for finding in check_names(sorted(folders), alone=False)
        if finding.path not in {f.path for f in findings}
    ]
    _raise(name, findings)
    files: dict[str, bytes] = {}
    for entry in sorted(entries, key=lambda entry: entry.orig_filename):
        path = entry.orig_filename
        if path.endswith("/") or _is_hidden(path):
            continue
        content = _unpacked(data, entry)
        if content is None:
            findings.append(_finding(path, "damaged-entry", "it is not what the archive says it is", _REPACK))
            continue
        files[path] = content
    _raise(name, findings)
    return Package(name, files, data)


def hidden_files(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a ZIP's hidden files, damaged or unusual ones raw."""
    import zipfile

    archive = zipfile.ZipFile(io.BytesIO(data), metadata_encoding="utf-8")
    for entry in archive.infolist():
        path = entry.orig_filename
        if _is_hidden(path) and not path.endswith("/"):
            content = _unpacked(data, entry)
            begin = entry.header_offset
            yield path, data[begin : begin + entry.compress_size] if content is None else content


def from_files(name: str, files: Mapping[str, bytes], archive: bytes | None = None) -> Package:
    """Return the package of stored files. Raises InvalidPackage."""
    _raise(name, [*check_names(files), *_too_large({path: len(data) for path, data in files.items()})])
    return Package(name, {path: files[path] for path in sorted(files) if not _is_hidden(path)}, archive)


def to_archive(files: Mapping[str, bytes]) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[path])
    return buffer.getvalue()


def check_names(names: Iterable[str], *, alone: bool = True) -> list[PackageFinding]:
    """Return problems of paths; with `alone`, also conflicts on case-insensitive file systems, and files
    where folders are."""
    names = list(names)
    findings = [
        _finding(name, "bad-path", f"its name {problem}", "paths are relative, with / and without ..")
        for name in names
        if (problem := path_problem(name))
    ]
    if not alone:
        return findings
    findings += [
        _finding(name, "duplicate-path", f"it is in the package {count} times", "keep one of them")
        for name, count in Counter(names).items()
        if count > 1
    ]
    if len(names) > MAX_FILES:
        findings.append(_finding("", "too-many-files", f"it has over {MAX_FILES} files", _SMALLER))
        return findings
    spellings: dict[str, str] = {}
    files = set(names)
    for name in dict.fromkeys(names):
        for part in _with_folders(name):
            other = spellings.setdefault(_folded(part), part)
            if other != part:
                findings.append(
                    _finding(
                        name,
                        "case-twins",
                        f"{one_line(part, 80)} and {one_line(other, 80)} are one name where case doesn't count",
                        "rename one of them",
                    )
                )
            elif part in files and part != name:
                findings.append(
                    _finding(
                        name, "bad-path", f"{one_line(part, 80)} is a file and a folder", "rename one of them"
                    )
                )
    return findings


def path_problem(path: str) -> str | None:
    """Return why a path is invalid, or None."""
    if not path or len(path.encode("utf-8", "surrogatepass")) > _MOST_PATH:
        return f"is longer than {_MOST_PATH} bytes" if path else "is empty"
    if "\\" in path:
        return "has a backslash"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if not path.isprintable():
        return "has a character that cannot be printed"
    parts = path.split("/")
    if ".." in parts:
        return "leads upwards"
    if "" in parts or "." in parts:
        return "has a part without a name"
    if len(parts) > _MOST_PARTS:
        return f"is nested over {_MOST_PARTS - 1} folders deep"
    if any(stands_for_git(part) for part in parts if not _is_hidden(part)):
        return "stands for git's own folder on some systems"
    if any(len(part.encode()) > _MOST_NAME for part in parts):
        return f"has a part longer than {_MOST_NAME} bytes"
    return None


def mounted(path: str, where: str = PACKAGE_MOUNT) -> str:
    """Return a path with a mount: `{project-root}/x` and `@project/x` are `@project/x`, and `x` is below
    `where`. Raises Invalid for absolute or escaping paths."""
    text = path.strip()
    for written, mount in MOUNT_PLACEHOLDERS.items():
        if text == written or text.startswith(f"{written}/"):
            text = mount + text.removeprefix(written)
            break
    mount, _, rest = text.partition("/")
    if mount not in (PROJECT_MOUNT, PACKAGE_MOUNT, STATE_MOUNT):
        if text.startswith(("@", "{")):
            known = ", ".join((PROJECT_MOUNT, PACKAGE_MOUNT, STATE_MOUNT))
            raise Invalid(f"{one_line(path, 80)} begins with no folder that is known", f"known: {known}")
        mount, rest = where, text
    rest = "/".join(part for part in rest.split("/") if part != ".") if not rest.startswith("/") else rest
    rest = rest.removesuffix("/")
    if rest and (problem := path_problem(rest)):
        raise Invalid(f"path {one_line(path, 80) or 'of nothing'} {problem}", f"write it as {mount}/FILE")
    return f"{mount}/{rest}" if rest else mount


def _read_folder(path: Path) -> Package:
    name = _without_suffix(path.resolve().name or "package")
    entries: dict[str, os.stat_result] = {}
    findings: list[PackageFinding] = []
    for relative, entry in _walk(path, name):
        mode = entry.st_mode
        if stat.S_ISLNK(mode):
            findings.append(_finding(relative, "link", "it is a link", "put a copy of the file in its place"))
        elif not stat.S_ISREG(mode):
            findings.append(_finding(relative, "special-file", "it is not a regular file", "remove it"))
        else:
            entries[relative] = entry
    findings += [*check_names(entries), *_too_large({key: entry.st_size for key, entry in entries.items()})]
    _raise(name, findings)
    files: dict[str, bytes] = {}
    for relative in sorted(entries):
        try:
            files[relative] = _content(path / relative)
        except OSError as error:
            findings.append(
                _finding(relative, "unreadable", f"it cannot be read: {error.strerror}", "check it")
            )
    _raise(name, findings)
    return from_files(name, files)


def _walk(top: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [("", top)]
    count = 0
    while waiting:
        prefix, folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
                for entry in inside:
                    if _is_hidden(entry.name):
                        continue
                    if (count := count + 1) > 2 * MAX_FILES:
                        hint = "put the crew's files in a folder of their own"
                        raise _refused(name, "too-many-files", f"it has over {MAX_FILES} files", hint)
                    relative = f"{prefix}{entry.name}"
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        waiting.append((f"{relative}/", folder / entry.name))
                    else:
                        yield relative, info
        except OSError as error:
            raise unreadable_document(one_line(str(folder)), error) from None


def _content(path: Path) -> bytes:
    descriptor = system.open_file(path, os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE >> 20} MiB")
    return data


_REPACK = "pack it again with another program"
_SMALLER = "leave out what no step and no menu needs"


def _check_archive(data: bytes, name: str) -> None:
    if len(data) > MAX_ARCHIVE:
        raise _refused(name, "too-large", f"it is larger than {MAX_ARCHIVE >> 20} MiB", _SMALLER)
    if not data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        raise _refused(
            name, "bad-archive", "it is not a ZIP archive", "a package is a .bmad file or a folder"
        )
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - (1 << 16) - 22))
    if end < 0:
        raise _refused(name, "bad-archive", "the ZIP has no end: it was cut off", "get it again")
    size = int.from_bytes(data[end + 12 : end + 16], "little")
    if data.count(b"PK\x01\x02", max(0, end - size), end) > 2 * MAX_FILES:
        raise _refused(name, "too-many-files", f"it has over {MAX_FILES} files", _SMALLER)


def _entry_findings(entries: Iterable[zipfile.ZipInfo]) -> Iterator[PackageFinding]:
    sizes: dict[str, int] = {}
    for entry in entries:
        path = entry.orig_filename
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.flag_bits & _ENCRYPTED:
            yield _finding(path, "encrypted", "it is encrypted", "pack it again without a password")
        if kind == stat.S_IFLNK:
            yield _finding(path, "link", "it is a link", "pack a copy of the file in its place")
        elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            yield _finding(path, "special-file", "it is a device or a pipe", "remove it")
        elif path.endswith("/") and entry.file_size:
            yield _finding(path, "bad-path", "it is a folder with content", _REPACK)
        if entry.compress_type not in (_STORED, _DEFLATED):
            yield _finding(
                path, "compression", "it is compressed in a way not known here", "pack it with deflate"
            )
        sizes[path] = max(entry.file_size, sizes.get(path, 0))
        if entry.file_size > max(_UNSUSPECTED, MAX_RATIO * entry.compress_size):
            yield _finding(
                path,
                "zip-bomb",
                f"it would unpack to over {MAX_RATIO} times its size in the archive",
                "it is not unpacked; who made it?",
            )
    yield from _too_large(sizes)


def _overlaps(entries: Iterable[zipfile.ZipInfo]) -> Iterator[PackageFinding]:
    taken = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < taken:
            yield _finding(
                entry.orig_filename, "zip-bomb", "it shares bytes with another entry", "it is not unpacked"
            )
        taken = max(taken, entry.header_offset + 30 + len(entry.orig_filename.encode()) + entry.compress_size)


def _unpacked(data: bytes, entry: zipfile.ZipInfo) -> bytes | None:
    import zlib

    start = entry.header_offset
    head = data[start : start + 30]
    if len(head) < 30 or not head.startswith(b"PK\x03\x04"):
        return None
    name, extra = (int.from_bytes(head[at : at + 2], "little") for at in (26, 28))
    if data[start + 30 : start + 30 + name] != entry.orig_filename.encode():
        return None
    begin = start + 30 + name + extra
    packed = data[begin : begin + entry.compress_size]
    content = packed
    if entry.compress_type == _DEFLATED:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            content = inflate.decompress(packed, entry.file_size + 1)
        except zlib.error:
            return None
        if not inflate.eof:
            return None
    if len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
        return None
    return content


def _too_large(sizes: Mapping[str, int]) -> Iterator[PackageFinding]:
    for path, size in sizes.items():
        if size > MAX_FILE:
            yield _finding(path, "too-large", f"it is larger than {MAX_FILE >> 20} MiB", _SMALLER)
    if sum(sizes.values()) > MAX_TOTAL:
        yield _finding("", "too-large", f"its files are larger than {MAX_TOTAL >> 20} MiB together", _SMALLER)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") or part in _UNSEEN for part in path.split("/"))


def _with_folders(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _without_suffix(name: str) -> str:
    return name.removesuffix(SUFFIX).removesuffix(".zip") or name


def _finding(path: str, code: str, message: str, hint: str) -> PackageFinding:
    return PackageFinding(one_line(path, _MOST_SHOWN), 0, 0, code, message, hint)


def _raise(name: str, findings: Iterable[PackageFinding]) -> None:
    if distinct := list(dict.fromkeys(findings))[:500]:
        raise InvalidPackage(name, distinct)


def _refused(name: str, code: str, message: str, hint: str) -> InvalidPackage:
    return InvalidPackage(name, [_finding("", code, message, hint)])


def definition_of(crew: str, workflow: str) -> bytes:
    """Return the file that names the crew and the workflow of a version."""
    names = json.dumps({"crew": crew, "workflow": workflow}, ensure_ascii=False, separators=(",", ":"))
    return f"{names}\n".encode()
