"""Which pages a remote's URL leads to."""

from __future__ import annotations

import pytest

from uwf_git.config.forges import Pages, pages
from uwf_git.config.settings import FORGES

BRANCH, BASE = "uwf/threads/X", "uwf/base/X"


def github(root: str) -> Pages:
    return Pages(f"{root}/tree/{BRANCH}", f"{root}/commits/{BRANCH}", f"{root}/compare/{BASE}...{BRANCH}")


def gitlab(root: str) -> Pages:
    return Pages(
        f"{root}/-/tree/{BRANCH}", f"{root}/-/commits/{BRANCH}", f"{root}/-/compare/{BASE}...{BRANCH}"
    )


def gitea(root: str) -> Pages:
    return Pages(
        f"{root}/src/branch/{BRANCH}",
        f"{root}/commits/branch/{BRANCH}",
        f"{root}/compare/{BASE}...{BRANCH}",
    )


def bitbucket(root: str) -> Pages:
    compare = f"{root}/branches/compare/uwf%2Fthreads%2FX%0Duwf%2Fbase%2FX#diff"
    return Pages(f"{root}/src/uwf%2Fthreads%2FX/", f"{root}/commits/branch/{BRANCH}", compare)


def sourcehut(root: str) -> Pages:
    return Pages(f"{root}/tree/{BRANCH}", f"{root}/log/{BRANCH}", None)


KNOWN = [
    ("https://github.com/ada/work.git", github("https://github.com/ada/work")),
    ("https://github.com/ada/work", github("https://github.com/ada/work")),
    ("https://github.com/ada/work/", github("https://github.com/ada/work")),
    ("https://GitHub.com:443/ada/work.git", github("https://github.com/ada/work")),
    ("https://ada@github.com/ada/work.git", github("https://github.com/ada/work")),
    ("https://ada:s3cret@github.com/ada/work.git", github("https://github.com/ada/work")),
    ("https://ada:s3@cret@github.com/ada/work.git", github("https://github.com/ada/work")),
    ("git@github.com:ada/work.git", github("https://github.com/ada/work")),
    ("github.com:ada/work", github("https://github.com/ada/work")),
    ("git@github.com:/ada/work.git", github("https://github.com/ada/work")),
    ("ssh://git@github.com/ada/work.git", github("https://github.com/ada/work")),
    ("ssh://git@ssh.github.com:443/ada/work.git", github("https://github.com/ada/work")),
    ("git+ssh://git@github.com/ada/work.git", github("https://github.com/ada/work")),
    ("git://github.com/ada/work.git", github("https://github.com/ada/work")),
    ("https://ada.ghe.com/ada/work.git", github("https://ada.ghe.com/ada/work")),
    ("https://github.example.org/ada/work.git", github("https://github.example.org/ada/work")),
    ("https://github.com/ada/my%20work.git", github("https://github.com/ada/my%20work")),
    ("https://gitlab.com/group/sub/deep/work.git", gitlab("https://gitlab.com/group/sub/deep/work")),
    ("git@gitlab.com:group/sub/work.git", gitlab("https://gitlab.com/group/sub/work")),
    ("ssh://git@altssh.gitlab.com:443/group/work.git", gitlab("https://gitlab.com/group/work")),
    ("ssh://git@gitlab.example.org:2222/group/work.git", gitlab("https://gitlab.example.org/group/work")),
    ("https://gitlab.example.org:8443/group/work", gitlab("https://gitlab.example.org:8443/group/work")),
    ("https://salsa.debian.org/ada/work.git", gitlab("https://salsa.debian.org/ada/work")),
    ("https://codeberg.org/ada/work.git", gitea("https://codeberg.org/ada/work")),
    ("ssh://git@codeberg.org/ada/work.git", gitea("https://codeberg.org/ada/work")),
    ("git@gitea.example.org:ada/work.git", gitea("https://gitea.example.org/ada/work")),
    ("https://gitea.com/ada/work.git", gitea("https://gitea.com/ada/work")),
    ("https://code.forgejo.org/ada/work.git", gitea("https://code.forgejo.org/ada/work")),
    ("https://gitea.example.org/git/ada/work.git", gitea("https://gitea.example.org/git/ada/work")),
    ("https://ada@bitbucket.org/space/work.git", bitbucket("https://bitbucket.org/space/work")),
    ("git@bitbucket.org:space/work.git", bitbucket("https://bitbucket.org/space/work")),
    ("ssh://git@altssh.bitbucket.org:443/space/work.git", bitbucket("https://bitbucket.org/space/work")),
    ("git@git.sr.ht:~ada/work", sourcehut("https://git.sr.ht/~ada/work")),
    ("https://git.sr.ht/~ada/work", sourcehut("https://git.sr.ht/~ada/work")),
]


@pytest.mark.parametrize(("url", "expected"), KNOWN, ids=[url for url, _ in KNOWN])
def test_a_known_forge_is_told_by_any_form_of_its_url(url: str, expected: Pages) -> None:
    found = pages(url, BRANCH, BASE)
    assert found == expected
    assert "cret" not in str(found)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/git/work.git",
        "../work.git",
        "./host:work",
        "file:///srv/git/github.com/ada/work.git",
        "https://git.example.org/ada/work.git",
        "git@example.org:ada/work.git",
        "https://github.com/ada",
        "https://github.com/",
        "https://github.com",
        "https://github.com/ada/../work",
        "https://github.com/ada//work",
        "https://github.com/ada/work/tree/main",
        "https://git.sr.ht/ada/work",
        "https://github.com\n.example.org/ada/work",
        "https://git\x1b[31mhub.com/ada/work",
        "ext::sh -c github.com:ada/work",
        "ftp://github.com/ada/work",
        "https://notgithub.com/ada/work",
        "https://example.gitlab/ada/work",
    ],
)
def test_what_no_page_is_known_for_leads_to_none(url: str) -> None:
    assert pages(url, BRANCH, BASE) is None


@pytest.mark.parametrize("kind", FORGES)
def test_the_configuration_says_what_a_host_runs(kind: str) -> None:
    path = "~ada/work" if kind == "sourcehut" else "ada/work"
    made = {
        "github": github,
        "gitlab": gitlab,
        "gitea": gitea,
        "forgejo": gitea,
        "bitbucket": bitbucket,
        "sourcehut": sourcehut,
    }[kind]
    for url in (f"https://git.example.org/{path}.git", f"git@git.example.org:{path}"):
        assert pages(url, BRANCH, BASE, {"git.example.org": kind}) == made(f"https://git.example.org/{path}")
    assert pages(f"http://127.0.0.1:3000/{path}", BRANCH, BASE, {"127.0.0.1": kind}) == made(
        f"http://127.0.0.1:3000/{path}"
    )


def test_a_host_with_a_port_may_be_named_with_it() -> None:
    kinds = {"git.example.org:8443": "gitea", "git.example.org": "gitlab"}
    assert pages("https://git.example.org:8443/a/b", BRANCH, BASE, kinds) == gitea(
        "https://git.example.org:8443/a/b"
    )
    assert pages("https://git.example.org/a/b", BRANCH, BASE, kinds) == gitlab("https://git.example.org/a/b")


def test_the_configuration_goes_before_the_name() -> None:
    found = pages("https://gitlab.example.org/a/b", BRANCH, BASE, {"gitlab.example.org": "gitea"})
    assert found == gitea("https://gitlab.example.org/a/b")


def test_nothing_in_a_branch_name_ends_the_url_or_begins_a_query() -> None:
    branch = 'why?#50%&"<ü>'
    found = pages("https://github.com/ada/work", branch, None)
    assert found == Pages(
        "https://github.com/ada/work/tree/why%3F%2350%25%26%22%3C%C3%BC%3E",
        "https://github.com/ada/work/commits/why%3F%2350%25%26%22%3C%C3%BC%3E",
        None,
    )


def test_without_a_base_there_is_nothing_to_compare_with() -> None:
    for url in ("https://github.com/a/b", "https://gitlab.com/a/b", "https://bitbucket.org/a/b"):
        found = pages(url, BRANCH, None)
        assert found is not None
        assert found.compare is None
