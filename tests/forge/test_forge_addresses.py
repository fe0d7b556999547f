"""Issues and repositories are told by their URLs, and no token goes to a host by its name alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Uwf

from uwf_git.base.errors import Invalid
from uwf_git.config.read import load_config
from uwf_git.config.settings import Config
from uwf_git.forge.address import parse_issue, parse_repository

OWN = """\
forges:
  git.example.org: gitea
  code.example.org: { kind: gitlab, api: https://code.example.org/gitlab/api/v4 }
  127.0.0.1:3000: forgejo
  ghe.example.org: github
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "config.yaml").write_text(OWN)
    return load_config(tmp_path)


GITHUB = ("github", "https://api.github.com", "ada/work")
ISSUES = [
    ("https://github.com/ada/work/issues/42", GITHUB),
    ("https://www.github.com/ada/work/issues/42", GITHUB),
    ("HTTPS://GitHub.com/ada/work/issues/42/", GITHUB),
    ("https://github.com/ada/work/issues/42#issuecomment-7", GITHUB),
    ("https://github.com/ada/work/issues/42?x=y", GITHUB),
    ("https://ada:s3cret@github.com/ada/work/issues/42", GITHUB),
    ("https://github.com/ada/issues/issues/42", ("github", "https://api.github.com", "ada/issues")),
    ("https://ada.ghe.com/ada/work/issues/42", ("github", "https://api.ada.ghe.com", "ada/work")),
    ("https://ghe.example.org/ada/work/issues/42", ("github", "https://ghe.example.org/api/v3", "ada/work")),
    ("https://gitlab.com/a/b/c/work/-/issues/42", ("gitlab", "https://gitlab.com/api/v4", "a/b/c/work")),
    ("https://gitlab.com/a/work/-/work_items/42", ("gitlab", "https://gitlab.com/api/v4", "a/work")),
    ("https://gitlab.com/a/work/issues/42", ("gitlab", "https://gitlab.com/api/v4", "a/work")),
    (
        "https://code.example.org/gitlab/a/b/work/-/issues/42",
        ("gitlab", "https://code.example.org/gitlab/api/v4", "a/b/work"),
    ),
    ("https://codeberg.org/ada/work/issues/42", ("forgejo", "https://codeberg.org/api/v1", "ada/work")),
    ("https://git.example.org/ada/work/issues/42", ("gitea", "https://git.example.org/api/v1", "ada/work")),
    (
        "https://git.example.org/git/ada/work/issues/42",
        ("gitea", "https://git.example.org/git/api/v1", "ada/work"),
    ),
    ("http://127.0.0.1:3000/ada/work/issues/42", ("forgejo", "http://127.0.0.1:3000/api/v1", "ada/work")),
]


@pytest.mark.parametrize(("url", "expected"), ISSUES, ids=[url for url, _ in ISSUES])
def test_an_issue_is_told_by_the_url_of_its_page(
    url: str, expected: tuple[str, str, str], config: Config
) -> None:
    address = parse_issue(url, config)
    forge, path = address.repository
    assert ((forge.kind, forge.api, path), address.number) == (expected, 42)
    assert "s3cret" not in str(address)
    assert parse_issue(address.url, config) == address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/ada/work.git", "github.com/ada/work"),
        ("git@github.com:ada/work.git", "github.com/ada/work"),
        ("ssh://git@ssh.github.com:443/ada/work", "github.com/ada/work"),
        ("git@gitlab.com:a/b/work.git", "gitlab.com/a/b/work"),
        ("https://ada:s3cret@code.example.org/gitlab/a/b/work.git", "code.example.org/a/b/work"),
        ("ssh://git@git.example.org:2222/ada/work.git", "git.example.org/ada/work"),
    ],
)
@pytest.mark.parametrize("number", ["#42", "42"])
def test_a_number_is_of_the_repository_of_the_remote(
    url: str, expected: str, number: str, config: Config
) -> None:
    assert str(parse_issue(number, config, url)) == f"{expected}#42"
    assert str(parse_repository(url, config)) == expected


def test_of_an_unknown_host_the_line_is_named_that_makes_it_known(
    uwf: Uwf, root: Path, config: Config
) -> None:
    url = "https://forge.example.org:8443/ada/work/issues/42"
    with pytest.raises(Invalid, match=r"kind of forge at forge.example.org:8443 is not known") as refused:
        parse_issue(url, config)
    words = refused.value.hint.partition("uwf config set ")[2].split()
    uwf("config", "set", *words)
    assert str(parse_issue(url, load_config(root))) == "forge.example.org:8443/ada/work#42"
    uwf("config", "unset", f"forges.{words[0].removeprefix('forges.')}")
    uwf("config", "set", "forges.forge.example.org:8443.kind", "forgejo")
    uwf("config", "set", "forges.forge.example.org:8443.api", "https://forge.example.org:8443/api/v1/")
    forge = parse_issue(url, load_config(root)).repository.forge
    assert (forge.kind, forge.api) == ("forgejo", "https://forge.example.org:8443/api/v1")
    uwf(
        "config",
        "set",
        "forges.forge.example.org:8443",
        "{ kind: gitea, api: 'https://forge.example.org:8443/v1' }",
    )
    forge = parse_issue(url, load_config(root)).repository.forge
    assert (forge.kind, forge.api) == ("gitea", "https://forge.example.org:8443/v1")
    refused_api = uwf("config", "set", "forges.forge.example.org:8443.api", "ftp://x", check=1)
    assert "must be an address" in refused_api.error["message"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "#0",
        "#042",
        "42 43",
        "#" + "9" * 30,
        "ada/work#42",
        "https://github.com/ada/work/issues/",
        "https://github.com/ada/work/issues/new",
        "https://github.com/ada/work/issues/42/43",
        "https://github.com/ada/work/pull/42",
        "https://gitlab.com/ada/work/-/merge_requests/42",
        "https://codeberg.org/ada/work/pulls/42",
        "https://github.com/ada/work/work_items/42",
        "https://github.com/issues/42",
        "https://github.com/ada/../work/issues/42",
        "https://github.com/ada/w%2e%2e/../work/issues/42",
        "https://github.com/ada/wo%3Frk/issues/42",
        "https://github.com/ada/wo%0Ark/issues/42",
        "https://github.com\n.example.org/ada/work/issues/42",
        "https://github.com\\@evil.example/ada/work/issues/42",
        "https://bitbucket.org/ada/work/issues/42",
        "https://git.sr.ht/~ada/work/issues/42",
        "git@github.com:ada/work/issues/42",
        "file:///ada/work/issues/42",
        "https://evil.example/github.com/ada/work/issues/42",
    ],
)
def test_what_is_no_issue_is_refused_in_one_line(text: str, config: Config) -> None:
    with pytest.raises(Invalid) as refused:
        parse_issue(text, config, "https://github.com/ada/work")
    assert refused.value.hint and "\n" not in refused.value.message


@pytest.mark.parametrize("remote", [None, "/srv/git/work.git", "file:///srv/work.git", "https://github.com/"])
def test_a_number_alone_is_no_issue(remote: str | None, config: Config) -> None:
    with pytest.raises(Invalid) as refused:
        parse_issue("#42", config, remote)
    assert refused.value.hint


def test_a_remote_that_is_on_no_forge_is_named_without_its_login(config: Config) -> None:
    with pytest.raises(Invalid, match=r"the remote https://localhost is not on a forge") as refused:
        parse_issue("#42", config, "https://ada:s3cret@localhost")
    assert "s3cret" not in refused.value.message


def test_a_login_in_a_url_is_not_printed(config: Config) -> None:
    with pytest.raises(Invalid) as refused:
        parse_issue("https://ada:s3cret@github.com/ada/work/nothing/42", config)
    assert "s3cret" not in refused.value.message + refused.value.hint
