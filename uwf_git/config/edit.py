"""Editing `config.yaml` and `.env`.

Files are replaced atomically. Comments in `config.yaml` are kept if the change fits one place of the text;
otherwise (flow style, block scalars) the file is rewritten with only its top comments.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uwf_git.base import system
from uwf_git.base.errors import Invalid, NotFound, Usage, UwfError
from uwf_git.base.extensions import config_section
from uwf_git.base.text import nearest, one_line
from uwf_git.config.read import read_document, wrong_values
from uwf_git.config.settings import (
    FIELDS,
    FILE,
    FLAT,
    HOST_FIELDS,
    HOSTS,
    INLINE_KEY,
    KEYS,
    NESTED,
    STRUCTURED,
    TEXTS,
    VARIABLE,
    key_hint,
    known_keys,
)
from uwf_git.format import yaml12
from uwf_git.format.document import Document, decode, read_bytes
from uwf_git.format.schema import ValuePath, value_at
from uwf_git.format.yaml12 import dump, scalar
from uwf_git.git.fsync import sync
from uwf_git.sandbox.enclosing_step import require_person

_KEY_PART = r'"((?:[^"\\]|\\.)*)"|([^."]+)'  # one in quotes is written as in JSON


def list_values(root: Path) -> dict[str, Any]:
    """Return every setting by dotted key in file order; lists are values, providers' keys are hidden."""
    leaves: dict[str, Any] = {}

    def walk(value: Any, path: ValuePath) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, (*path, key))
        elif path and value is not None:
            leaves[dotted(path)] = value

    walk(_without_keys(read_document(root).data), ())
    return leaves


def _inline_keys(data: Any) -> set[tuple[str, Any]]:
    providers = value_at(data, ("providers",))
    entries = providers.items() if isinstance(providers, dict) else ()
    return {
        (name, str(entry[INLINE_KEY]))
        for name, entry in entries
        if isinstance(entry, dict) and INLINE_KEY in entry
    }


def _without_keys(data: Any) -> Any:
    data = copy.deepcopy(data)
    for name, _ in _inline_keys(data):
        data["providers"][name][INLINE_KEY] = "[redacted]"
    return data


def get_value(root: Path, key: str) -> Any:
    """Return a value or section by dotted key, without providers' keys. Raises NotFound, Usage."""
    document = read_document(root)
    value = value_at(_without_keys(document.data), _path_in(document, key))
    if value is None:
        known = list_values(root)
        raise NotFound(f"{one_line(key, 80)} is not set", nearest(key, known) or "see: uwf config list")
    return value


def set_value(root: Path, key: str, text: str) -> Any:
    """Set a dotted key in `config.yaml`; return the value. The text is taken literally, except that `timeout`
    may be a number, `args` a YAML list or a command line, and a section is YAML. Raises Usage for an unknown
    key, Invalid."""
    if text.strip() == "null":
        raise Usage(f"{one_line(key, 80)}: null is not a value", f"to unset it: uwf config unset {key}")
    with _locked(root):
        document = read_document(root)
        before = wrong_values(document, root / FILE)
        path = split_key(key, document.data)
        value = _value(path, text)
        data = copy.deepcopy(document.data) or {}
        held = _inline_keys(data)
        _put(data, path, value)
        if _inline_keys(data) - held:
            raise Usage(f"{one_line(key, 80)}: {INLINE_KEY} cannot be set", key_hint(INLINE_KEY, ()))
        problems = wrong_values(yaml12.load(dump(data), FILE), root / FILE)
        known = {(problem.message, problem.hint) for problem in before}
        for problem in problems:
            if (problem.message, problem.hint) not in known:
                raise Invalid(_about(key, problem.message), problem.hint)
        old = _text(root / FILE)
        _replace(root / FILE, _edited(old, document, data, path, value), None)
    return value


def with_setting(text: str, path: ValuePath, value: Any) -> str:
    """Return the text of a configuration with another value at a path. Comments are kept."""
    document = yaml12.load(text, FILE)
    data = copy.deepcopy(document.data) or {}
    _put(data, path, value)
    return _edited(text, document, data, path, value)


def _about(key: str, message: str) -> str:
    """Return a message that names its key once, whole: of a value in a file it names the last part alone, or it."""
    for name in (key, _key_parts(key)[-1]):
        if message.startswith(f"{name} "):
            message = message.removeprefix(name)
            return one_line(key, 80) + message
    return f"{one_line(key, 80)}: {message}"


def unset_value(root: Path, key: str) -> Any:
    """Remove a dotted key and then empty sections; return the old value. Unknown keys can be removed if
    present. Raises NotFound, Usage, Invalid."""
    with _locked(root):
        document = read_document(root)
        path = _path_in(document, key)
        if path not in document.keys:
            known = list_values(root)
            raise NotFound(f"{one_line(key, 80)} is not set", nearest(key, known) or "see: uwf config list")
        value = value_at(_without_keys(document.data), path)
        while len(path) > 1 and len(value_at(document.data, path[:-1])) == 1:
            path = path[:-1]
        data = copy.deepcopy(document.data)
        del value_at(data, path[:-1])[path[-1]]
        old = _text(root / FILE)
        text = _without(old, path)
        if text is None or not _reads_as(text, data or None):
            text = _written_anew(old, data)
        _replace(root / FILE, text, None)
    return value


def _without(old: str, path: ValuePath) -> str | None:
    entry = _entry_at(old, path)
    if entry is None:
        return None
    key, value = entry
    lines = old.split("\n")
    return "\n".join([*lines[: key.start_mark.line], *lines[_last_line(value) + 1 :]])


def _entry_at(text: str, path: ValuePath) -> tuple[Any, Any] | None:
    """Return the YAML nodes of a key and its value, None if it isn't there."""
    import yaml

    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    entry = None
    for part in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        entry = next((pair for pair in pairs if pair[0].value == part), None)
        if entry is None:
            return None
        node = entry[1]
    return entry


def _last_line(node: Any) -> int:
    """Return the last line of a YAML node, since the mark of a block mapping is the start of the next token."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    end = node.end_mark
    return int(end.line - (end.column == 0 and end.line > node.start_mark.line))


def write_secret(root: Path, name: str, value: str) -> Path:
    """Set a variable in `<root>/.env` (mode 0600), keeping other lines. Return the file. Raises Invalid."""
    if not re.fullmatch(VARIABLE, name):
        raise Invalid(f"{one_line(name, 60)!r} is not a variable name", "for instance OPENAI_API_KEY")
    if not value or not value.isprintable():
        raise Invalid(f"the value of {name} is empty or holds control characters", "give it on one line")
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    line = f"{name}='{escaped}'\n"
    path = root / ".env"
    with _locked(root):
        from io import StringIO

        from dotenv.parser import parse_stream

        kept = []
        for binding in parse_stream(StringIO(_text(path))):
            if binding.key != name:
                kept.append(binding.original.string)
            elif line not in kept:
                kept.append(line)
        if line not in kept:
            if kept and not kept[-1].endswith("\n"):
                kept.append("\n")
            kept.append(line)
        _replace(path, "".join(kept), 0o600)
    return path


def dotted(path: ValuePath) -> str:
    """Return a path as a key, with quotes around names that a key can't hold as they are."""
    return ".".join(map(_key_part, map(str, path)))


def project_setting(checkout: str, field: str, value: str) -> str:
    """Return the command, for a shell, that sets a field of `workspace` for one project."""
    key = dotted(("workspace", "projects", checkout, field))
    return f"uwf config set {shlex.quote(key)} {shlex.quote(value)}"


def _key_part(name: str) -> str:
    if name.isprintable() and not name.startswith("/") and not {*'."\\'} & {*name}:
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def _key_parts(key: str) -> list[str]:
    parts = []
    for quoted, plain in re.findall(_KEY_PART, key):
        try:
            parts.append(json.loads(f'"{quoted}"') if quoted else plain)
        except ValueError:
            parts.append(quoted)
    return parts


def _path_in(document: Document, key: str) -> ValuePath:
    try:
        return split_key(key, document.data)
    except Usage:
        path = tuple(_key_parts(key))
        if path not in document.keys:
            raise
        return path


def split_key(key: str, data: Any) -> ValuePath:
    """Return the path of a dotted key. Aliases may contain dots (`models.gpt-4.1.name`), so known fields
    decide where a name ends. Raises Usage."""
    parts = _key_parts(key)
    section = parts[0] if parts else ""
    if section not in KEYS and config_section(section) is None:
        known = known_keys()
        hint = nearest(section, known) or "known: " + ", ".join(known)
        raise Usage(f"unknown key {one_line(key, 80)!r}", hint)
    rest = parts[1:]
    if section in TEXTS and rest:
        raise Usage(f"{section} holds one value, so {one_line(key, 80)!r} leads nowhere", f"use {section}")
    if section in NESTED or section not in KEYS:
        return tuple(parts)
    cut = next((at for at, part in enumerate(rest) if at and part in STRUCTURED.get(section, ())), None)
    if cut is not None:
        return (section, ".".join(rest[:cut]), *rest[cut:])
    if section in HOSTS and len(rest) > 1 and rest[-1] in HOST_FIELDS:
        return (section, ".".join(rest[:-1]), rest[-1])
    if section in FLAT or len(rest) < 2:
        return (section, ".".join(rest)) if rest else (section,)
    section_value = value_at(data, (section,))
    entries = section_value if isinstance(section_value, dict) else {}
    if (whole := ".".join(rest)) in entries:
        return (section, whole)
    if section == "agentOverrides":
        cut = next((n for n in range(len(rest) - 1, 0, -1) if ".".join(rest[:n]) in entries), len(rest) - 1)
        return (section, ".".join(rest[:cut]), ".".join(rest[cut:]))
    fields = FIELDS[section]
    if rest[-1] not in fields:
        raise Usage(f"unknown key {one_line(rest[-1], 40)!r} in {section}", key_hint(rest[-1], fields))
    return (section, ".".join(rest[:-1]), rest[-1])


def _value(path: ValuePath, text: str) -> Any:
    section, field = path[0], path[-1]
    if section == "agents" and len(path) == 3 and field in ("timeout", "silence"):
        number = yaml12.core(text)
        return number if isinstance(number, int | float) and not isinstance(number, bool) else text
    if field == "env" or (section == "agents" and len(path) == 3 and field == "args"):
        try:
            return yaml12.load(text, field).data if text.lstrip().startswith("[") else shlex.split(text)
        except ValueError as error:
            raise Invalid(f"{field}: {str(error).lower()}", "close the quote") from None
    of_hook = section == "hooks" and len(path) == 2 and field != "timeout"
    of_host = section in HOSTS and len(path) == 2
    own = None if section in KEYS else config_section(str(section))
    if of_hook or of_host or (own is not None and field in own.texts):
        is_collection = re.match(r"\s*(?:\[|\{(?!\{))", text) is not None  # a template begins with two braces
        return yaml12.load(text, dotted(path)).data if is_collection else text
    if section in NESTED or own is not None or not {*STRUCTURED.get(str(section), ())}.isdisjoint(path[2:]):
        return yaml12.load(text, dotted(path)).data
    is_text = section in TEXTS or len(path) == 3 or (section in FLAT and len(path) == 2)
    value = text if is_text else yaml12.load(text, dotted(path)).data
    if not is_text and not isinstance(value, dict):
        shape = "{HOST: KIND}" if section in HOSTS else "{command: …}"
        raise Invalid(f"{dotted(path)} is a mapping, and can only be set to one", shape)
    return value


def _put(data: Any, path: ValuePath, value: Any) -> None:
    for number, part in enumerate(path):
        if not isinstance(data, dict):
            what = dotted(path[:number]) or "the file"
            raise Invalid(
                f"{FILE}: {what} is not a mapping, so nothing can be set in it", "correct it by hand"
            )
        if number == len(path) - 1:
            data[part] = value
        elif data.get(part) is None:
            data[part] = {}
        data = data[part]


def _edited(old: str, document: Document, data: dict[str, Any], path: ValuePath, value: Any) -> str:
    for attempt in (_with_value_replaced, _with_entry_added):
        text = attempt(old, document, path, value)
        if text is not None and _reads_as(text, data):
            return text
    return _written_anew(old, data)


def _written_anew(old: str, data: dict[str, Any]) -> str:
    head = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*", old)
    return (head.group() if head else "") + (dump(data) if data else "")


def _reads_as(text: str, data: Any) -> bool:
    try:
        return bool(yaml12.load(text, FILE).data == data)
    except UwfError:
        return False


def _with_value_replaced(old: str, document: Document, path: ValuePath, value: Any) -> str | None:
    entry = _entry_at(old, path)
    if entry is None or isinstance(value, dict):
        return None
    start, end = entry[1].start_mark, entry[1].end_mark
    if start.line != end.line or start.index == end.index:
        return None
    new = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else scalar(value)
    return old[: start.index] + new + old[end.index :]


def _with_entry_added(old: str, document: Document, path: ValuePath, value: Any) -> str | None:
    depth = next((n for n in range(len(path) - 1, -1, -1) if value_at(document.data, path[:n])), None)
    if value_at(document.data, path) is not None:
        return None
    lines = old.split("\n")
    indent, after = 0, len(lines) - (lines[-1] == "")
    if depth:
        above = path[:depth]
        below = [mark for key, mark in document.marks.items() if key[:depth] == above and len(key) > depth]
        indent = min(document.keys[key].column for key in document.keys if key[:-1] == above) - 1
        after = max(mark.line for mark in below)
    entry: Any = value
    for part in reversed(path[depth or 0 :]):
        entry = {part: entry}
    added = [" " * indent + line if line else "" for line in dump(entry).splitlines()]
    return "\n".join([*lines[:after], *added, *lines[after:]]).rstrip("\n") + "\n"


def _text(path: Path) -> str:
    try:
        return decode(read_bytes(path), str(path))
    except NotFound:
        return ""


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Lock the storage root for a read-modify-write, by the folder itself, so nothing is left behind. Raises
    RequirementUnmet within a step, unless the root is younger."""
    require_person("changes the configuration", root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = system.lock_folder(root, wait=True)
    except OSError as error:
        raise _unwritable(root, error) from None
    try:
        yield
    finally:
        os.close(folder)


def _replace(path: Path, text: str, mode: int | None) -> None:
    """Replace a file atomically. `mode` None keeps its mode."""
    target = path.resolve()
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            if mode is None:
                mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
            system.set_mode(file.fileno(), mode)
            file.write(text)
            file.flush()
            system.sync(file.fileno())
        system.replace(temporary, target)
        sync(target.parent)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _umask() -> int:
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> Invalid:
    return Invalid(f"{one_line(str(path))} cannot be written: {error.strerror}", "check its permissions")
