"""Whose token goes to which forge, and that none of them is stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR, write
from conftest import Uwf

from uwf_git.base.errors import Invalid
from uwf_git.config.read import load_config
from uwf_git.config.secrets import Redactor
from uwf_git.config.settings import Config
from uwf_git.forge.address import Forge
from uwf_git.forge.login import VARIABLES, Login, find_login

SECRET = "glpat0123456789abcdefXYZ"
TOKENS = {row.name: f"{row.name.lower()}-0123456789abcdef" for row in VARIABLES}
GH = "auth token --hostname ghe.example.org"
OWN = "forges: {code.example.org: gitlab, git.example.org: gitea, ghe.example.org: github}\n"


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[str], Config]:
    def read(text: str) -> Config:
        (tmp_path / "config.yaml").write_text(text)
        return load_config(tmp_path)

    return read


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Programs by name, which are scripts of a shell on the PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def add(name: str, text: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return add


def login(kind: str, host: str, config: Config, environ: dict[str, str] | None = None) -> Login:
    environ = {**os.environ, **(TOKENS if environ is None else environ)}
    return find_login(Forge(kind, host, f"https://{host}/api"), config, environ, Redactor({}))


@pytest.mark.parametrize(
    ("kind", "host", "environ", "variable"),
    [
        ("github", "github.com", {}, "GH_TOKEN"),
        ("github", "ghe.example.org", {}, "GH_ENTERPRISE_TOKEN"),
        ("github", "other.example.org", {"GH_HOST": "other.example.org"}, "GH_TOKEN"),
        ("github", "other.example.org", {"GITHUB_SERVER_URL": "https://other.example.org"}, "GH_TOKEN"),
        ("gitlab", "code.example.org", {}, "GITLAB_TOKEN"),
        ("gitlab", "gitlab.com", {"GITLAB_HOST": "gitlab.com"}, "GITLAB_TOKEN"),
        ("gitlab", "own.example.org:8443", {"CI_SERVER_URL": "https://own.example.org:8443"}, "GITLAB_TOKEN"),
        ("gitea", "git.example.org", {}, "GITEA_TOKEN"),
        ("forgejo", "codeberg.org", {}, "FORGEJO_TOKEN"),
    ],
)
def test_a_variable_counts_for_the_hosts_it_is_meant_for(
    kind: str,
    host: str,
    environ: dict[str, str],
    variable: str,
    configured: Callable[[str], Config],
) -> None:
    assert login(kind, host, configured(OWN), {**TOKENS, **environ}) == (
        TOKENS[variable],
        variable,
        False,
        "",
    )


@pytest.mark.parametrize(
    ("kind", "host", "environ"),
    [
        ("github", "github.evil.example", {}),
        ("github", "github.com.evil.example", {}),
        ("github", "github.com", {"GH_HOST": "ghe.example.org"}),
        ("gitlab", "gitlab.evil.example", {}),
        ("gitlab", "gitlab.com", {}),
        ("gitlab", "code.example.org:8443", {}),
        ("gitlab", "code.example.org", {"GITLAB_HOST": "gitlab.com"}),
        ("gitea", "gitea.evil.example", {}),
        ("gitea", "codeberg.org", {}),
        ("forgejo", "git.example.org", {}),
        ("forgejo", "forgejo.evil.example", {}),
    ],
)
def test_no_other_host_gets_a_token(
    kind: str, host: str, environ: dict[str, str], configured: Callable[[str], Config]
) -> None:
    with pytest.raises(Invalid, match="not logged in to ") as refused:
        login(kind, host, configured(OWN), {**TOKENS, **environ})
    assert "log in: " in refused.value.hint


def test_without_a_configuration_a_token_is_for_the_public_forge(configured: Callable[[str], Config]) -> None:
    config = configured("")
    assert login("gitlab", "gitlab.com", config).source == "GITLAB_TOKEN"
    assert login("gitea", "gitea.com", config).source == "GITEA_TOKEN"


def test_who_is_not_logged_in_is_told_how(configured: Callable[[str], Config]) -> None:
    expected = {
        ("github", "github.com"): "gh auth login --hostname github.com, or set GH_TOKEN or GITHUB_TOKEN",
        ("gitlab", "gitlab.com"): "glab auth login --hostname gitlab.com, or set GITLAB_TOKEN",
        ("gitea", "gitea.com"): "tea login add --url https://gitea.com, or set GITEA_TOKEN",
    }
    for (kind, host), hint in expected.items():
        with pytest.raises(Invalid) as refused:
            login(kind, host, configured(""), {})
        assert refused.value.hint == f"log in: {hint}"


def test_gh_is_asked_for_the_host_and_sees_no_token_of_another(
    configured: Callable[[str], Config], programs: Callable[[str, str], None]
) -> None:
    programs("gh", f'test -z "$GH_ENTERPRISE_TOKEN$GH_TOKEN" || exit 1\ntest "$*" = "{GH}" && echo {SECRET}')
    config = configured("forges: {x.example.org: github}")
    assert login("github", "ghe.example.org", config) == (SECRET, "gh", False, "")
    with pytest.raises(Invalid):
        login("github", "other.example.org", config)


@pytest.mark.needs("gh")
def test_the_real_gh_has_the_token_of_its_host_alone(
    configured: Callable[[str], Config], tmp_path: Path
) -> None:
    hosts = tmp_path / "gh" / "hosts.yml"
    hosts.parent.mkdir()
    hosts.write_text(f"ghe.example.org:\n    user: ann\n    oauth_token: {SECRET}\n")
    config = configured("forges: {x.example.org: github}")
    environ = {**TOKENS, "GH_CONFIG_DIR": str(hosts.parent)}
    assert login("github", "ghe.example.org", config, environ) == (SECRET, "gh", False, "")
    with pytest.raises(Invalid, match="not logged in"):
        login("github", "other.example.org", config, environ)


@pytest.mark.parametrize(("answer", "bearer"), [("true", True), ("", False), ("false", False)])
def test_glab_is_asked_for_the_host_and_whether_its_token_is_one_of_oauth(
    answer: str,
    bearer: bool,
    configured: Callable[[str], Config],
    programs: Callable[[str, str], None],
) -> None:
    own = "config get token --host own.example.org", "config get is_oauth2 --host own.example.org"
    programs("glab", f'case "$*" in "{own[0]}") echo {SECRET};; "{own[1]}") echo {answer};; *) exit 1;; esac')
    assert login("gitlab", "own.example.org", configured("")) == (SECRET, "glab", bearer, "")
    with pytest.raises(Invalid):
        login("gitlab", "other.example.org", configured(""))


@pytest.mark.parametrize(
    "text",
    [
        "exit 1",
        f"echo {SECRET}; exit 1",
        "echo",
        "echo You are not logged in",
        "kill $$",
        "yes | head -c 999999",
    ],
)
def test_a_program_that_has_no_token_gives_none(
    text: str, configured: Callable[[str], Config], programs: Callable[[str, str], None]
) -> None:
    programs("gh", text)
    with pytest.raises(Invalid, match="not logged in"):
        login("github", "github.com", configured(""), {})


def test_a_program_of_the_project_is_not_asked(
    configured: Callable[[str], Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "gh").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho {SECRET}\n")
    (project / "gh").chmod(0o755)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", f"{project}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Invalid):
        login("github", "github.com", configured(""), {})
    assert not (tmp_path / "ran").exists()


def test_teas_login_of_the_host_is_used(configured: Callable[[str], Config], tmp_path: Path) -> None:
    folder = tmp_path / "config" / "tea"
    folder.mkdir(parents=True)
    (folder / "config.yml").write_text(
        f"logins:\n- {{name: other, url: 'https://other.example.org', token: other-0123456789}}\n"
        f"- 7\n- {{name: mine, url: 'https://git.example.org:3000/', token: {SECRET}, default: true}}\n"
    )
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert login("gitea", "git.example.org:3000", configured(""), environ) == (SECRET, "tea", False, "")
    with pytest.raises(Invalid):
        login("gitea", "git.example.org", configured(""), environ)


def test_a_token_is_not_shown_and_the_redactor_knows_it(
    configured: Callable[[str], Config], programs: Callable[[str, str], None]
) -> None:
    programs("gh", f"echo {SECRET}")
    redactor = Redactor({})
    assert redactor.text(f"token {SECRET}")[1] == 0
    forge = Forge("github", "github.com", "https://api.github.com")
    credentials = find_login(forge, configured(""), os.environ, redactor)
    assert SECRET not in f"{credentials!r} {credentials}"
    assert redactor.text(f"token {SECRET}!") == ("token [redacted:gh]!", 1)
    split = f"{SECRET[:9]}\n  {SECRET[9:]}"
    assert redactor.text(f"token {split}!")[1] == 1, "also with a line's end in it"


def test_a_token_of_a_variable_is_never_stored(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    words = " ".join(TOKENS.values())
    thread = uwf("thread", "start", "pair", "-p", f"Use {words}", env=TOKENS).json["thread"]
    stored = uwf("thread", "read", thread).out
    assert [token for token in TOKENS.values() if token in stored] == []
    assert "[redacted:GITLAB_TOKEN]" in stored
