"""From an issue of Jira to a request on a forge, and one comment back on the issue, kept current."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from conftest import Begin, Uwf
from forge_server import Failing
from jira_server import JiraServer, jira_server
from landing_forge import Killer, LandingForge, at_forge
from landing_shop import Shop

from uwf_git.ext.landing.request import without_links


class Work(NamedTuple):
    forge: LandingForge
    jira: JiraServer

    def configured(self, fixes: str = "") -> None:
        """Write config.yaml, with other words for the fixer's."""
        api = f"{self.jira.url}/rest/api/2"
        self.forge.shop.configured(
            f"forges: {{ '{self.forge.server.url.partition('://')[2]}': gitea }}\n"
            f"trackers: {{ '{self.jira.host}': {{ kind: jira, api: {api} }} }}\n"
            "land: { comment: true }\n",
            fixes,
        )

    def at_gate(self, uwf: Uwf, key: str = "SHOP-42") -> str:
        """The thread of an issue, whose gate waits."""
        uwf("workflow", "put", self.forge.shop.folder / "mend.yaml")
        run = uwf("run", "mend", key, check=5)
        return str(run.lines[0]["thread"])

    def accepted(self, uwf: Uwf, key: str = "SHOP-42") -> str:
        thread = self.at_gate(uwf, key)
        uwf("thread", "answer", thread, "-m", "merge")
        return thread


@pytest.fixture(params=["cloud", "data-center"])
def work(request: pytest.FixtureRequest, bare_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    with at_forge("gitea", bare_shop, monkeypatch) as forge, jira_server(request.param == "cloud") as jira:
        work = Work(forge, jira)
        work.configured()
        for name, value in jira.environ.items():
            monkeypatch.setenv(name, value)
        yield work


one_jira = pytest.mark.parametrize("work", ["cloud"], indirect=True)


def test_an_issue_becomes_a_branch_a_request_and_one_comment_that_is_kept_current(
    uwf: Uwf, work: Work
) -> None:
    work.jira.has_issue("SHOP-42", "Add two", "It is missing.", ("bob", "Please."))
    thread = work.at_gate(uwf)
    draft = uwf("land", thread).json
    assert draft["branch"] == "mend/SHOP-42-add-two"
    assert f"For {work.jira.page('SHOP-42')}" in draft["request"]["body"]
    assert f"For {work.jira.page('SHOP-42')}" in work.forge.shop.at_remote(
        "log", "-1", "--format=%B", draft["commit"]
    )
    _, comment = work.jira.bodies("SHOP-42")
    assert comment.startswith(f"Thread {{{{{thread}}}}} of workflow {{{{mend}}}}: at work")
    assert f"{draft['pull']['url']} (draft)" in comment
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("land", thread)
    assert len(work.jira.bodies("SHOP-42")) == 2
    current = work.jira.bodies("SHOP-42")[1]
    assert "completed" in current and "(draft)" not in current
    writes = [call.method for call in work.jira.asked if call.method != "GET"]
    uwf("land", thread)
    assert [call.method for call in work.jira.asked if call.method != "GET"] == writes == ["POST", "PUT"]
    work.jira.comments["SHOP-42"].pop()  # somebody deletes it
    uwf("land", thread)
    assert len(work.jira.bodies("SHOP-42")) == 1


@one_jira
def test_a_comment_that_was_written_though_the_call_failed_is_found(uwf: Uwf, work: Work) -> None:
    work.jira.has_issue("SHOP-42", "Add two")
    thread = work.accepted(uwf)
    work.jira.failing["POST"] = [Failing(502, {}, does=True)]
    uwf("land", thread, check=8)
    assert uwf("land", thread).json["branch"] == "mend/SHOP-42-add-two"
    assert len(work.jira.bodies("SHOP-42")) == 1


@one_jira
def test_a_mark_that_somebody_else_wrote_is_not_taken_for_ours(uwf: Uwf, work: Work) -> None:
    work.jira.has_issue("SHOP-42", "Add two")
    thread = work.accepted(uwf)
    work.jira.failing["POST"] = [Failing(502, {}, does=True)]
    uwf("land", thread, check=8)
    (own,) = work.jira.bodies("SHOP-42")
    work.jira.comments["SHOP-42"] = []
    work.jira.has("SHOP-42", "eve", own)
    uwf("land", thread)
    assert [row["author"] for row in work.jira.comments["SHOP-42"]] == [
        work.jira.user("eve"),
        work.jira.user("uwf"),
    ]


@one_jira
def test_a_machine_that_does_not_know_the_tracker_names_the_issue_all_the_same(uwf: Uwf, work: Work) -> None:
    work.jira.has_issue("SHOP-42", "Add two")
    thread = work.accepted(uwf)
    uwf("config", "unset", "trackers")
    uwf("config", "set", "land.comment", "false")
    assert f"For {work.jira.page('SHOP-42')}" in uwf("land", thread).json["request"]["body"]


@one_jira
def test_an_agents_commits_keep_the_key_of_their_own_issue_and_no_other(uwf: Uwf, work: Work) -> None:
    commit = 'git commit -qam "SHOP-42: add it" -m "See SHOP-7. Fixes ENG-1."'
    work.configured(f"cat $WHAT >> sum.txt; {commit}; ")
    work.jira.has_issue("SHOP-42", "Add two")
    landed = uwf("land", work.accepted(uwf), "--commits", "keep").json
    message = work.forge.shop.at_remote("log", "-1", "--format=%B", landed["commit"])
    assert message.startswith("SHOP-42: add it\n\nSee SHOP 7. Fixes ENG 1.\n")


@pytest.mark.extended
@one_jira
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_landing_that_is_killed_at_any_call_of_jira_writes_no_second_comment_and_forgets_none(
    uwf: Uwf, begin: Begin, work: Work, moment: str
) -> None:
    number, killer = 0, Killer(work.jira, moment)  # type: ignore[arg-type]
    while number == 0 or killer.has_killed:
        number += 1
        key = f"SHOP-{number}"
        work.jira.has_issue(key, f"Add the line {number}")
        thread = work.accepted(uwf, key)
        killer.kills(begin("land", thread), number)
        uwf("land", thread)
        assert len(work.jira.bodies(key)) == 1, key
    assert number > 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SHOP-42 #close #time 3w", "SHOP 42 # close # time 3w"),
        ("Fixes ENG-7, (SHOP_2-1)", "Fixes ENG 7, (SHOP_2 1)"),
        ("closes GH-9 and #8", "closes GH 9 and # 8"),
        (
            "Read UTF-8, UTF-16, SHA-256, ISO-8601, ISO-8859-1, CVE-2026-1234, RFC-2119, UTC-5 and X86-64",
            None,
        ),
        ("a-1, B-52, sub-42, PRE-release, A1-, x86-64, --max-3, 2026-01-02, XY-07", None),
    ],
)
def test_keys_of_trackers_link_to_nothing_and_names_of_standards_stay(text: str, shown: str | None) -> None:
    assert without_links(text) == (text if shown is None else shown)
