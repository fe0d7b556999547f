"""Tokens for forges and trackers: from the environment, or from the programs that the user has logged in with.

A variable's token is for some hosts alone, since any host may be called `gitlab.example.org`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.config.secrets import Redactor
from uwf_git.config.settings import Config
from uwf_git.forge.address import FORGEJO, GITEA, GITHUB, GITLAB, Forge
from uwf_git.forge.trackers import TRACKERS
from uwf_git.sandbox.programs import find_program, trusted_path

_TIMEOUT = 20.0
_LONGEST = 4096


class Variable(NamedTuple):
    """A variable with a token for one kind of forge. The token is for the host in the first variable of `hosts` that is
    set. Without one it is for hosts of the kind in config.yaml, if `own`; if there are none, for the `public` hosts.
    A tracker's is for one host: if there are several, the variable has to say which. `user` is the variable with the
    user that a server wants beside the token."""

    name: str
    kind: str
    hosts: tuple[str, ...]
    public: tuple[str, ...] = ()
    own: bool = True
    user: str = ""


_GITHUB_HOSTS = ("GITHUB_SERVER_URL", "GH_HOST")
VARIABLES = (
    Variable("GH_TOKEN", GITHUB, _GITHUB_HOSTS, ("github.com",), own=False),
    Variable("GITHUB_TOKEN", GITHUB, _GITHUB_HOSTS, ("github.com",), own=False),
    Variable("GH_ENTERPRISE_TOKEN", GITHUB, _GITHUB_HOSTS),
    Variable("GITLAB_TOKEN", GITLAB, ("GITLAB_HOST", "CI_SERVER_URL"), ("gitlab.com",)),
    Variable("GITEA_TOKEN", GITEA, ("GITEA_SERVER_URL",), ("gitea.com",)),
    Variable("FORGEJO_TOKEN", FORGEJO, ("FORGEJO_SERVER_URL",), ("codeberg.org",)),
    *(Variable(row.token, row.kind, (row.server,), user=row.user) for row in TRACKERS.values()),
)
"""In the order in which they count."""

_WAYS = {
    GITHUB: "log in: gh auth login --hostname {host}",
    GITLAB: "log in: glab auth login --hostname {host}",
    FORGEJO: "log in: tea login add --url {server}",
    GITEA: "log in: tea login add --url {server}",
    **{kind: row.log_in for kind, row in TRACKERS.items()},
}


class Login(NamedTuple):
    """A token. `source` is the variable or program that it is from; `bearer`: it is one of OAuth. `user` is "" if the
    token is enough."""

    token: str
    source: str
    bearer: bool = False
    user: str = ""

    def __repr__(self) -> str:
        return f"Login(source={self.source!r})"


def find_login(
    forge: Forge,
    config: Config,
    environ: Mapping[str, str],
    redactor: Redactor,
    value_of: Callable[[str], str] | None = None,
) -> Login:
    """Return the login for a forge, whose token the redactor knows from then on. Tokens and hosts are those of
    `value_of`, by variable, if not of `environ`, with which programs are called. Raises Invalid if there is none."""
    value_of = value_of or (lambda name: environ.get(name, ""))
    login = next(_logins(forge, config, environ, value_of), None)
    if login is None:
        names = [
            row.name
            for row in VARIABLES
            if row.kind == forge.kind and forge.host in _hosts(row, config, value_of)
        ]
        hint = _WAYS[forge.kind].format(host=forge.host, server=forge.pages or f"https://{forge.host}")
        variable = f", or set {' or '.join(names)}" if names and forge.kind not in TRACKERS else ""
        raise Invalid(f"not logged in to {forge.host}", hint + variable)
    redactor.learn(login.source.replace(" ", "_"), login.token)
    return login


def _logins(
    forge: Forge, config: Config, environ: Mapping[str, str], value_of: Callable[[str], str]
) -> Iterator[Login]:
    for row in VARIABLES:
        is_for = row.kind == forge.kind and forge.host in _hosts(row, config, value_of)
        if is_for and (token := value_of(row.name).strip()):
            yield Login(token, row.name, user=value_of(row.user).strip() if row.user else "")
    if forge.kind == GITHUB:
        if token := _printed(environ, "gh", "auth", "token", "--hostname", forge.host):
            yield Login(token, "gh")
    elif forge.kind == GITLAB:
        if token := _printed(environ, "glab", "config", "get", "token", "--host", forge.host):
            is_oauth = _printed(environ, "glab", "config", "get", "is_oauth2", "--host", forge.host)
            yield Login(token, "glab", bearer=is_oauth == "true")
    elif forge.kind in (FORGEJO, GITEA) and (token := _of_tea(forge, environ)):
        yield Login(token, "tea")


def _hosts(row: Variable, config: Config, value_of: Callable[[str], str]) -> tuple[str, ...]:
    for name in row.hosts:
        if host := value_of(name).strip():
            return (_host(host),)
    own = [
        host
        for host, kind in (*config.forges.items(), *config.trackers.items())
        if kind == row.kind and host not in row.public
    ]
    if row.kind in TRACKERS and len(own) > 1:
        return ()
    return tuple(own) if row.own and own else row.public


def _host(address: str) -> str:
    """Return the host of a URL, or of a host itself."""
    try:
        return urlsplit(address if "://" in address else f"//{address}").netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _printed(environ: Mapping[str, str], name: str, *args: str) -> str:
    """Return what a program prints, "" if it is not there, fails, or prints more than a word."""
    from uwf_git.sandbox.child import run_command

    program = find_program(name, environ=environ)
    if program is None:
        return ""
    # With these it would answer for a host that a variable isn't meant for.
    names = {row.name for row in VARIABLES} | {
        "GITHUB_ENTERPRISE_TOKEN",
        "OAUTH_TOKEN",
        "GITLAB_ACCESS_TOKEN",
    }
    kept = {key: value for key, value in environ.items() if key not in names}
    try:
        done = run_command(
            (program, *args),
            cwd=Path("/"),
            env={**kept, "PATH": trusted_path(environ=environ)},
            timeout=_TIMEOUT,
            keep=_LONGEST,
        )
    except UwfError:
        return ""
    words = done.stdout_tail.decode("utf-8", "replace").split()
    return words[0] if done.returncode == 0 and not done.timed_out and len(words) == 1 else ""


def _of_tea(forge: Forge, environ: Mapping[str, str]) -> str:
    """Return the token of tea's login for a host, "" if there is none."""
    from uwf_git.format import yaml12

    home = Path(environ.get("HOME") or "~").expanduser()
    folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    for path in (folder / "tea" / "config.yml", home / ".tea" / "tea.yml"):
        try:
            data = yaml12.read(path).data if path.is_file() else None
        except UwfError:
            continue
        logins = data.get("logins") if isinstance(data, dict) else None
        for login in logins if isinstance(logins, list) else ():
            fields = login if isinstance(login, dict) else {}
            token = fields.get("token")
            if isinstance(token, str) and token and _host(str(fields.get("url", ""))) == forge.host:
                return token
    return ""
