"""Forge pages of a pushed branch, derived from the remote's URL alone, without network and without its
credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from uwf_git.config.settings import FORGES

_HOSTS = {
    "github.com": "github",
    "gitlab.com": "gitlab",
    "salsa.debian.org": "gitlab",
    "codeberg.org": "forgejo",
    "bitbucket.org": "bitbucket",
    "git.sr.ht": "sourcehut",
}
# SSH hosts on the HTTPS port, for restrictive networks.
_SSH_HOSTS = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
# A host's own name often says what it runs: gitlab.example.org, code.forgejo.org.
_TELLING = ("github", "gitlab", "gitea", "forgejo")
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:[^/]*@)?(?P<host>[^/@]+)/(?P<path>.*)", re.DOTALL
)
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:\[\]]+):(?P<path>.*)", re.DOTALL)
_HOST = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]+)?"
)
# Pages of a branch, of its commits and of a comparison, below the repository; "" if a forge has none.
_GITEA = ("src/branch/{branch}", "commits/branch/{branch}", "compare/{base}...{branch}")
_PAGES = {
    "github": ("tree/{branch}", "commits/{branch}", "compare/{base}...{branch}"),
    "gitlab": ("-/tree/{branch}", "-/commits/{branch}", "-/compare/{base}...{branch}"),
    "gitea": _GITEA,
    "forgejo": _GITEA,
    # A slash would end the name here, and a carriage return separates the two sides.
    "bitbucket": (
        "src/{whole_branch}/",
        "commits/branch/{branch}",
        "branches/compare/{whole_branch}%0D{whole_base}#diff",
    ),
    "sourcehut": ("tree/{branch}", "log/{branch}", ""),
}


class Pages(NamedTuple):
    """URLs to open. `compare` is None without a base, or if the forge has no such page."""

    branch: str
    commits: str
    compare: str | None


def pages(url: str, branch: str, base: str | None, kinds: Mapping[str, str] | None = None) -> Pages | None:
    """Return a branch's pages. `branch` and `base` are names below refs/heads/; `kinds` maps hosts to forges
    (see `settings.FORGES`). None for local paths and unknown hosts."""
    repository = _repository(url, kinds or {})
    if repository is None:
        return None
    kind, root = repository
    names = {
        "branch": _quoted(branch),
        "base": _quoted(base or ""),
        "whole_branch": _quoted(branch, ""),
        "whole_base": _quoted(base or "", ""),
    }
    shown, commits, compare = (page.format(**names) for page in _PAGES[kind])
    return Pages(f"{root}/{shown}", f"{root}/{commits}", f"{root}/{compare}" if base and compare else None)


def is_forge(url: str, kinds: Mapping[str, str] | None = None) -> bool:
    """Return whether a remote's URL is on a known forge; `kinds` as in `pages`."""
    return _repository(url, kinds or {}) is not None


def _repository(url: str, kinds: Mapping[str, str]) -> tuple[str, str] | None:
    scheme, location, path = _parts(url)
    match = _HOST.fullmatch(location)
    if match is None:
        return None
    host, port = match["name"].lower(), match["port"] or ""
    web = scheme in ("https", "http")
    if not web:
        host, port = _SSH_HOSTS.get(host, host), ""  # the port is that of ssh or the git daemon
        scheme = "https"
    elif (scheme, port) in (("https", ":443"), ("http", ":80")):
        port = ""
    kind = kinds.get(host + port) or kinds.get(host) or _kind(host)
    folders = unquote(path).strip("/").removesuffix(".git").rstrip("/").split("/")
    if kind is None or not _is_repository(kind, folders):
        return None
    return kind, f"{scheme}://{host}{port}/{_quoted('/'.join(folders), '/~')}"


def _parts(url: str) -> tuple[str, str, str]:
    if match := _URL.fullmatch(url):
        scheme = match["scheme"].lower()
        known = {"https": "https", "http": "http", "ssh": "ssh", "git": "git"}
        known |= {"git+ssh": "ssh", "ssh+git": "ssh"}
        path = match["path"].partition("?")[0].partition("#")[0]
        return (known[scheme], match["host"], path) if scheme in known else ("", "", "")
    if (match := _SCP.fullmatch(url)) and "://" not in url:
        return "ssh", match["host"], match["path"]
    return "", "", ""


def _kind(host: str) -> str | None:
    if host in _HOSTS:
        return _HOSTS[host]
    if host.endswith(".ghe.com"):
        return "github"
    labels = host.split(".")
    return next((name for name in _TELLING if name in labels[:-1]), None)


def _is_repository(kind: str, folders: list[str]) -> bool:
    if kind not in FORGES or any(part in ("", ".", "..") for part in folders):
        return False
    if kind == "sourcehut":
        return len(folders) == 2 and folders[0].startswith("~")
    # GitLab nests groups; a self-hosted server may be below a folder of its host.
    return len(folders) == 2 if kind in ("github", "bitbucket") else len(folders) >= 2


def _quoted(text: str, safe: str = "/") -> str:
    return quote(text, safe=safe, errors="surrogateescape")
