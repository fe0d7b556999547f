"""The command that installs an extra of uwf-git."""

from __future__ import annotations

import json
import shlex
import sys


def install_hint(extra: str) -> str:
    """Return the command for an extra, from where uwf-git was installed: a checkout, repository, file or
    index; a sentence if there is no pip."""
    from importlib.util import find_spec

    requirement, options = _requirement(extra)
    if find_spec("pip") is None:
        return f"install {requirement} into the environment of {sys.executable}"
    return shlex.join([sys.executable, "-m", "pip", "install", *options, requirement])


def _requirement(extra: str) -> tuple[str, list[str]]:
    from importlib.metadata import distributions
    from urllib.parse import unquote, urlsplit

    named = f"uwf-git[{extra}]"
    # PEP 610; absent if the package came from an index, and in the metadata that a build leaves in a checkout.
    texts = (distribution.read_text("direct_url.json") for distribution in distributions(name="uwf-git"))
    origin = json.loads(next(filter(None, texts), "null"))
    if origin is None:
        return named, []
    url = origin["url"]
    if "dir_info" in origin:
        options = ["-e"] if origin["dir_info"].get("editable") else []
        return f"{unquote(urlsplit(url).path)}[{extra}]", options
    version = origin.get("vcs_info") or {}
    at = f"@{version['commit_id']}" if "commit_id" in version else ""
    scheme = f"{version['vcs']}+" if "vcs" in version else ""
    return f"{named} @ {scheme}{url}{at}", []
