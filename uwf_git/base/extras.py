"""The command that installs an extra of uwf-git, for the way in which uwf-git was installed."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_NAME = "uwf-git"
_LIST = re.compile(r"\[([^]]*)\]")


def install_hint(extra: str) -> str:
    """Return the command for an extra, by the tool that installed uwf-git (uv tool, pipx, pip or `uv pip`) and from
    where it came: an index, repository, file or checkout. A sentence if there is none of these tools."""
    from importlib.util import find_spec

    home = Path(sys.prefix)
    if (receipt := home / "uv-receipt.toml").is_file():
        return shlex.join(["uv", "tool", "install", *_uv_tool(receipt, extra)])
    if (metadata := home / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "install", "--force", *_pipx(metadata, extra)])
    options, requirement = _requirement([extra])
    if find_spec("pip") is not None:
        if home == Path(sys.base_prefix) and _is_externally_managed():
            options = ["--break-system-packages", *options]
        return shlex.join([sys.executable, "-m", "pip", "install", *options, requirement])
    if "\nuv = " in _text(home / "pyvenv.cfg"):
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *options, requirement])
    return f"install {requirement} into the environment of {sys.executable}"


def _uv_tool(receipt: Path, extra: str) -> list[str]:
    """The arguments that leave all else of the tool as it was installed: uv takes what they lack away."""
    import tomllib

    tool = tomllib.loads(_text(receipt))["tool"]
    ours, others = {}, []
    for entry in tool["requirements"]:
        if entry["name"] == _NAME:
            ours = entry
        elif set(entry) <= {"name", "specifier", "extras"}:
            listed = f"[{','.join(entry['extras'])}]" if "extras" in entry else ""
            others += ["--with", f"{entry['name']}{listed}{entry.get('specifier', '')}"]
    settings = tool.get("options", {})
    options = ["--no-index"] if settings.get("no-index") else []
    for index in settings.get("index", ()):
        options += ["--default-index" if index.get("default") else "--index", index["url"]]
    for place in settings.get("find-links", ()):
        options += ["--find-links", place]
    editable, requirement = _requirement([*ours.get("extras", ()), extra], ours.get("specifier", ""))
    return [*options, *others, *editable, requirement]


def _pipx(metadata: Path, extra: str) -> list[str]:
    package: dict[str, Any] = json.loads(_text(metadata))["main_package"]
    listed = _LIST.search(package.get("package_or_url") or "")
    extras = [name.strip() for name in listed[1].split(",")] if listed else []
    arguments = [argument for argument in package.get("pip_args", ()) if argument not in ("-e", "--editable")]
    options = [f"--pip-args={shlex.join(arguments)}"] if arguments else []
    editable, requirement = _requirement([*extras, extra])
    return [*options, *editable, requirement]


def _requirement(extras: Iterable[str], specifier: str = "") -> tuple[list[str], str]:
    """Return `["-e"]` or nothing, and what is to be installed."""
    from importlib.metadata import distributions
    from urllib.parse import unquote, urlsplit

    listed = f"[{','.join(sorted(set(extras)))}]"
    # PEP 610; absent if the package came from an index, and in the metadata that a build leaves in a checkout.
    texts = (distribution.read_text("direct_url.json") for distribution in distributions(name=_NAME))
    origin = json.loads(next(filter(None, texts), "null"))
    if origin is None:
        return [], f"{_NAME}{listed}{specifier}"
    url = origin["url"]
    if "dir_info" in origin:
        options = ["-e"] if origin["dir_info"].get("editable") else []
        return options, f"{unquote(urlsplit(url).path)}{listed}"
    version = origin.get("vcs_info") or {}
    at = f"@{version['commit_id']}" if "commit_id" in version else ""
    scheme = f"{version['vcs']}+" if "vcs" in version else ""
    return [], f"{_NAME}{listed} @ {scheme}{url}{at}"


def _is_externally_managed() -> bool:
    """PEP 668: pip refuses to change the system's Python, so uwf-git came in by the option that allows it."""
    from sysconfig import get_path

    return Path(get_path("stdlib"), "EXTERNALLY-MANAGED").is_file()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
