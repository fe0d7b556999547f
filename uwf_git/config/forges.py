"""Repositories and pages of forges, derived from a remote's URL alone, without network and without its
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
# Other names of a host; those of SSH are on the HTTPS port, for restrictive networks.
_ALIASES = {
    "www.github.com": "github.com",
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


class Location(NamedTuple):
    """A repository on a forge of a known kind, one of FORGES, or "" for an unknown host. `host` has the port, if it is
    not the scheme's; `path` is below the server, without `.git`, and as the URL means it, not as it quotes it."""

    kind: str
    scheme: str
    host: str
    path: str

    @property
    def server(self) -> str:
        return f"{self.scheme}://{self.host}"


class Pages(NamedTuple):
    """URLs to open. `compare` is None without a base, or if the forge has no such page."""

    branch: str
    commits: str
    compare: str | None


def pages(url: str, branch: str, base: str | None, kinds: Mapping[str, str] | None = None) -> Pages | None:
    """Return a branch's pages. `branch` and `base` are names below refs/heads/; `kinds` maps hosts to forges
    (see `settings.FORGES`). None for local paths and unknown hosts."""
    location = locate(url, kinds or {})
    if location is None or not _is_repository(location):
        return None
    root = f"{location.server}/{_quoted(location.path, '/~')}"
    names = {
        "branch": _quoted(branch),
        "base": _quoted(base or ""),
        "whole_branch": _quoted(branch, ""),
        "whole_base": _quoted(base or "", ""),
    }
    shown, commits, compare = (page.format(**names) for page in _PAGES[location.kind])
    return Pages(f"{root}/{shown}", f"{root}/{commits}", f"{root}/{compare}" if base and compare else None)


def is_forge(url: str, kinds: Mapping[str, str] | None = None) -> bool:
    """Return whether a remote's URL is on a known forge; `kinds` as in `pages`."""
    location = locate(url, kinds or {})
    return location is not None and _is_repository(location)


def is_host(text: str) -> bool:
    """Return whether a text is a host's name or address, maybe with a port."""
    return _HOST.fullmatch(text) is not None


def locate(url: str, kinds: Mapping[str, str]) -> Location | None:
    """Return where a URL leads, by any form of it. None for local paths and what is no URL of a host."""
    scheme, location, path = _parts(url)
    match = _HOST.fullmatch(location)
    if match is None:
        return None
    host, port = match["name"].lower(), match["port"] or ""
    if scheme not in ("https", "http"):
        scheme, port = "https", ""  # the port is that of ssh or the git daemon
    elif (scheme, port) in (("https", ":443"), ("http", ":80")):
        port = ""
    host = _ALIASES.get(host, host)
    kind = kinds.get(host + port) or kinds.get(host) or _kind(host)
    path = unquote(path).strip("/").removesuffix(".git").rstrip("/")
    return Location(kind if kind in FORGES else "", scheme, host + port, path)


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


def _kind(host: str) -> str:
    if host in _HOSTS:
        return _HOSTS[host]
    if host.endswith(".ghe.com"):
        return "github"
    labels = host.split(".")
    return next((name for name in _TELLING if name in labels[:-1]), "")


def _is_repository(location: Location) -> bool:
    kind, folders = location.kind, location.path.split("/")
    if not kind or any(part in ("", ".", "..") for part in folders):
        return False
    if kind == "sourcehut":
        return len(folders) == 2 and folders[0].startswith("~")
    # GitLab nests groups; a self-hosted server may be below a folder of its host.
    return len(folders) == 2 if kind in ("github", "bitbucket") else len(folders) >= 2


def _quoted(text: str, safe: str = "/") -> str:
    return quote(text, safe=safe, errors="surrogateescape")
