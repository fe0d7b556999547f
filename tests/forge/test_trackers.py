"""An issue of Jira is a task as one of a forge is: known by its address, read by a login of its own, and only data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cli_samples import PAIR, write
from conftest import Result, Uwf
from forge_server import Failing
from issue_injections import INJECTIONS
from jira_server import TOKEN, USER, JiraServer, jira_server
from test_issue_starts import outside_of_fences

from uwf_git.base.errors import Invalid
from uwf_git.config import settings
from uwf_git.config.read import load_config
from uwf_git.config.secrets import Redactor
from uwf_git.config.settings import Config
from uwf_git.forge.address import Forge, parse_issue
from uwf_git.forge.issue_text import LONGEST_COMMENTS, LONGEST_TEXT
from uwf_git.forge.jira import JiraIssue
from uwf_git.forge.login import Login, find_login
from uwf_git.forge.rest import ForgeDeclined
from uwf_git.forge.trackers import TRACKERS

OWN = """\
trackers:
  issues.example.org: { kind: jira, api: https://issues.example.org/jira/rest/api/2 }
  shop.example.org: jira
"""


def read_config(text: str, folder: Path) -> Config:
    (folder / "config.yaml").write_text(text)
    return load_config(folder)


class Jira:
    """A Jira that the configuration names, and its user, who is logged in."""

    def __init__(self, server: JiraServer, uwf: Uwf) -> None:
        self.server = server
        self._uwf = uwf
        uwf("config", "set", f"trackers.{server.host}.kind", "jira")
        uwf("config", "set", f"trackers.{server.host}.api", f"{server.url}/rest/api/2")
        uwf("workflow", "put", write("pair.yaml", PAIR))

    def start(self, issue: str = "", check: int = 0, env: dict[str, str] | None = None) -> Result:
        env = self.server.environ if env is None else env
        return self._uwf(
            "thread", "start", "pair", issue or self.server.page("SHOP-42"), env=env, check=check
        )

    def started(self, issue: str = "", env: dict[str, str] | None = None) -> dict[str, Any]:
        """The payload of the StartNode of a thread that was started with the issue."""
        return self.payload(self.start(issue, env=env).json["thread"])

    def payload(self, thread: str) -> dict[str, Any]:
        head = self._uwf("thread", "show", thread).json["head"]
        return dict(self._uwf("cas", "get", head).json["payload"])

    def prompt(self, thread: str) -> str:
        return str(self.payload(thread)["prompt"])


@pytest.fixture(params=["cloud", "data-center"])
def jira(request: pytest.FixtureRequest, uwf: Uwf) -> Iterator[Jira]:
    with jira_server(request.param == "cloud") as server:
        yield Jira(server, uwf)


@pytest.fixture
def cloud(uwf: Uwf) -> Iterator[Jira]:
    with jira_server() as server:
        yield Jira(server, uwf)


# Addresses


@pytest.mark.parametrize(
    ("url", "page", "api"),
    [
        ("https://acme.atlassian.net/browse/SHOP-42", "acme.atlassian.net", "acme.atlassian.net"),
        ("https://acme.atlassian.net/browse/shop-42?focusedCommentId=7#x", "acme.atlassian.net", ""),
        ("https://ada:s3cret@acme.atlassian.net/browse/SHOP-42/", "acme.atlassian.net", ""),
        ("https://acme.atlassian.net/jira/software/c/projects/SHOP/issues/SHOP-42", "acme.atlassian.net", ""),
        (
            "https://acme.atlassian.net/jira/software/projects/SHOP/boards/1?x=y&selectedIssue=SHOP-42",
            "acme.atlassian.net",
            "",
        ),
        ("https://shop.example.org/projects/SHOP/issues/SHOP-42?filter=all", "shop.example.org", ""),
        ("https://jira.example.net/browse/SHOP-42", "jira.example.net", ""),
        ("https://shop.example.org/jira/browse/SHOP-42", "shop.example.org/jira", ""),
        (
            "https://shop.example.org/jira/secure/RapidBoard.jspa?selectedIssue=SHOP-42",
            "shop.example.org/jira",
            "",
        ),
        ("https://issues.example.org/jira/browse/SHOP-42", "issues.example.org/jira", ""),
    ],
)
def test_an_issue_of_a_tracker_is_told_by_the_url_of_its_page(
    url: str, page: str, api: str, tmp_path: Path
) -> None:
    config = read_config(OWN, tmp_path)
    address = parse_issue(url, config)
    assert (address.url, address.key) == (f"https://{page}/browse/SHOP-42", "SHOP-42")
    assert address.repository.forge.api == f"https://{api or page}/rest/api/2"
    assert str(address) == f"{page.partition('/')[0]}/SHOP-42"
    assert parse_issue(address.url, config) == address


@pytest.mark.parametrize("section", ["trackers: { %s: jira }", "forges: { %s: gitea }"])
def test_a_url_in_place_of_a_host_is_refused(tmp_path: Path, section: str) -> None:
    with pytest.raises(Invalid, match="is no host"):
        read_config(section % "'https://shop.example.org'" + "\n", tmp_path)


def test_a_key_alone_is_of_the_only_tracker(tmp_path: Path) -> None:
    config = read_config("trackers: { shop.example.org: jira }\n", tmp_path)
    assert parse_issue("shop-42", config).url == "https://shop.example.org/browse/SHOP-42"
    for text in ("", OWN):
        with pytest.raises(Invalid, match=r"of which config\.yaml names (none|several: issues\.)"):
            parse_issue("SHOP-42", read_config(text, tmp_path))


def test_of_an_unknown_host_the_line_is_named_that_makes_it_known(uwf: Uwf, root: Path) -> None:
    url = "https://issues.example.org:8443/jira/browse/SHOP-42"
    with pytest.raises(Invalid, match=r"kind of tracker at issues.example.org:8443 is not known") as refused:
        parse_issue(url, Config({}, {}, {}, None, {}, None, {}, {}, root))
    uwf("config", "set", *refused.value.hint.partition("uwf config set ")[2].split())
    assert parse_issue(url, load_config(root)).url == url
    assert "known: jira" in uwf("config", "set", "trackers.x.example.org", "bugzilla", check=1).error["hint"]


def test_each_kind_that_can_be_configured_has_its_row() -> None:
    assert tuple(TRACKERS) == settings.TRACKERS


# Logins


@pytest.mark.parametrize(
    ("text", "environ", "host"),
    [
        ("", {}, "acme.atlassian.net"),
        ("", {}, "jira.evil.example"),
        ("trackers: { acme.atlassian.net: jira }\n", {}, "evil.atlassian.net"),
        ("trackers: { acme.atlassian.net: jira }\n", {}, "acme.atlassian.net.evil.example"),
        ("trackers: { acme.atlassian.net: jira }\n", {"JIRA_SERVER": "https://x.org"}, "acme.atlassian.net"),
        (OWN, {}, "shop.example.org"),
    ],
)
def test_a_token_is_for_one_host_alone(text: str, environ: dict[str, str], host: str, tmp_path: Path) -> None:
    environ = {"JIRA_API_TOKEN": TOKEN, "GITEA_TOKEN": TOKEN, **environ}
    with pytest.raises(Invalid, match=f"not logged in to {host}") as refused:
        find_login(Forge("jira", host, ""), read_config(text, tmp_path), environ, Redactor({}))
    assert "JIRA_SERVER" in refused.value.hint


def test_a_token_counts_for_the_host_that_is_named(tmp_path: Path) -> None:
    environ = {"JIRA_API_TOKEN": TOKEN, "JIRA_USER": USER}
    for text, more, host in (
        ("trackers: { acme.atlassian.net: jira }\n", {}, "acme.atlassian.net"),
        (OWN, {"JIRA_SERVER": "https://shop.example.org/jira"}, "shop.example.org"),
        ("", {"JIRA_SERVER": "acme.atlassian.net"}, "acme.atlassian.net"),
    ):
        login = find_login(
            Forge("jira", host, ""), read_config(text, tmp_path), {**environ, **more}, Redactor({})
        )
        assert (login.token, login.user, login.source) == (TOKEN, USER, "JIRA_API_TOKEN")
        assert TOKEN not in repr(login)


def test_the_login_is_basic_with_an_address_and_a_bearer_without(jira: Jira) -> None:
    jira.server.has_issue("SHOP-42")
    jira.started()
    way = "Basic" if jira.server.is_cloud else "Bearer"
    assert {call.headers["Authorization"].partition(" ")[0] for call in jira.server.asked} == {way}


def test_a_login_that_is_not_taken_starts_nothing_though_strangers_may_read(jira: Jira, uwf: Uwf) -> None:
    jira.server.has_issue("SHOP-42")
    jira.server.is_public = True
    env = {**jira.server.environ, "JIRA_API_TOKEN": "jira-token-of-yesterday"}
    refused = jira.start(check=8, env=env)
    assert "does not take the login" in refused.error["message"]
    assert "JIRA_USER" in refused.error["hint"]
    assert uwf("thread", "list").json == [] and "yesterday" not in refused.err
    assert len(jira.server.asked) == 1


def test_a_captcha_is_named_and_the_call_not_repeated(jira: Jira) -> None:
    jira.server.has_issue("SHOP-42")
    jira.server.wants_captcha = True
    refused = jira.start(check=8)
    assert "wants a captcha" in refused.error["message"]
    assert refused.error["hint"].endswith(jira.server.page("SHOP-42"))
    assert len(jira.server.asked) == 1


def test_what_everybody_may_read_needs_no_login(jira: Jira) -> None:
    jira.server.has_issue("SHOP-42", "It fails", "Always.", ("bob", "Here too."))
    jira.server.is_public = True
    assert "Here too." in jira.started(env={})["prompt"]
    assert not any("Authorization" in call.headers for call in jira.server.asked)


def test_an_issue_that_a_stranger_may_not_see_is_not_there_and_the_login_is_named(jira: Jira) -> None:
    jira.server.has_issue("SHOP-42")
    refused = jira.start(check=3, env={})
    assert "SHOP-42 is not there" in refused.error["message"]
    assert "JIRA_API_TOKEN" in refused.error["hint"]


# Reading


def test_the_prompt_is_the_issue_and_the_start_names_it(jira: Jira, uwf: Uwf) -> None:
    jira.server.has_issue("SHOP-42", "It fails", "Always.", ("bob", "Here too."), labels=("bug", "urgent"))
    payload = jira.started()
    issue, prompt = payload["issue"], payload["prompt"]
    expected = {"url": jira.server.page("SHOP-42"), "number": 42, "title": "It fails", "author": "ann"}
    assert {name: issue[name] for name in expected} == expected
    assert issue["labels"] == ["bug", "urgent"]
    assert issue["sha256"] == sha256(prompt.encode()).hexdigest()
    for text in ("It fails", "bug\nurgent", "Always.", "Here too."):
        assert f"```text\n{text}\n```" in prompt
    assert f"Issue {jira.server.host}/SHOP-42, as it was at" in prompt
    assert "Comment 1, by bob, at 2026-01-02T03:04:" in prompt
    assert [row["title"] for row in uwf("thread", "list").json] == ["It fails (SHOP-42)"]
    assert uwf("verify").json["findings"] == []


def test_a_run_takes_a_key_of_the_only_tracker(cloud: Jira, uwf: Uwf) -> None:
    cloud.server.has_issue("SHOP-42")
    done = uwf("run", "pair", "SHOP-42", "--agent", "uwf-rehearse", env=cloud.server.environ)
    thread = done.lines[0]["thread"]
    read = uwf("thread", "read", thread, "--format", "json").json["issue"]
    assert (read["key"], read["url"]) == ("SHOP-42", cloud.server.page("SHOP-42"))


def test_a_jira_below_a_folder_of_its_host_is_read_there(jira: Jira, uwf: Uwf) -> None:
    jira.server.folder = "/jira"
    jira.server.has_issue("SHOP-42")
    uwf("config", "set", f"trackers.{jira.server.host}.api", f"{jira.server.url}/jira/rest/api/2")
    assert jira.started("SHOP-42")["issue"]["url"] == jira.server.page("SHOP-42")


def test_all_pages_of_comments_are_read(jira: Jira) -> None:
    jira.server.has_issue("SHOP-42", "It fails", "x", *(("bob", f"Remark {n}.") for n in range(1, 9)))
    prompt = jira.started()["prompt"]
    assert re.findall(r"Remark (\d+)\.", prompt) == list("12345678")
    assert "Left out" not in prompt


def test_of_very_many_comments_the_newest_are_read_and_the_rest_is_said(jira: Jira) -> None:
    jira.server.page_size = 100
    jira.server.has_issue("SHOP-42", "It fails", "x", *(("bob", f"Remark {n}.") for n in range(1, 506)))
    done = jira.start()
    prompt = jira.prompt(done.json["thread"])
    numbers = [int(number) for number in re.findall(r"Remark (\d+)\.", prompt)]
    assert numbers == list(range(numbers[0], 506)) and numbers[0] > 5
    assert prompt.endswith(f"Left out: {numbers[0] - 6} older comments, 5 comments not read.")
    assert "5 comments of issue" in done.err
    assert len(jira.server.asked) == 6


def test_comments_that_only_some_may_see_and_those_of_apps_are_left_out(cloud: Jira) -> None:
    cloud.server.has_issue("SHOP-42", "It fails", "x", ("bob", "Mine."))
    cloud.server.has("SHOP-42", "eve", "Secret.", visibility={"type": "role", "value": "Administrators"})
    cloud.server.has("SHOP-42", "eve", "Internal.", jsdPublic=False)
    cloud.server.has("SHOP-42", "ci", "Merge it.")["author"]["accountType"] = "app"
    cloud.server.has("SHOP-42", "uwf", f"It runs.\n^uwf-{'0' * 32}-{'0' * 12}^")
    prompt = cloud.started()["prompt"]
    for text in ("Secret.", "Internal.", "Merge it.", "It runs."):
        assert text not in prompt
    assert prompt.endswith("Left out: 2 comments of bots, 2 comments not read.")


def test_a_finished_issue_is_told(cloud: Jira) -> None:
    cloud.server.has_issue("SHOP-42", status="done")
    assert "SHOP-42 is closed" in cloud.start().err


def test_an_issue_that_was_moved_to_another_project_starts_nothing(cloud: Jira, uwf: Uwf) -> None:
    cloud.server.has_issue("OTHER-7")
    cloud.server.moved["SHOP-42"] = "OTHER-7"
    assert "was moved" in cloud.start(check=1).error["message"]
    assert uwf("thread", "list").json == []


def test_a_rate_limit_is_waited_for(cloud: Jira) -> None:
    cloud.server.has_issue("SHOP-42")
    cloud.server.failing["GET"] = [Failing(429, {}, {"Retry-After": "0"}), Failing(503, {})]
    assert cloud.started()["issue"]["title"] == "It fails"


def test_a_limit_that_asks_for_an_hour_is_an_error(cloud: Jira, uwf: Uwf) -> None:
    cloud.server.has_issue("SHOP-42")
    cloud.server.failing["GET"] = [Failing(429, {}, {"Retry-After": "3600"})]
    assert "asks to wait 3600 s" in cloud.start(check=8).error["message"]
    assert len(cloud.server.asked) == 1


def test_a_redirect_is_not_followed_with_the_token(cloud: Jira) -> None:
    with jira_server() as other:
        cloud.server.failing["GET"] = [Failing(302, {}, {"Location": f"{other.url}/rest/api/2/myself"})]
        assert "a redirect, which is not followed" in cloud.start(check=8).error["message"]
        assert other.asked == []


def test_a_login_in_the_file_of_the_store_counts_and_is_not_stored(cloud: Jira, root: Path, uwf: Uwf) -> None:
    (root / ".env").write_text("".join(f"{name}={value}\n" for name, value in cloud.server.environ.items()))
    cloud.server.has_issue("SHOP-42", "It fails", f"The token is {TOKEN}.")
    payload = cloud.started(env={})
    assert "The token is [redacted:JIRA_API_TOKEN]." in payload["prompt"] and TOKEN not in json.dumps(payload)


SEES = """\
name: sees
description: It sees the issue.
roles:
  writer:
    description: Writes.
    systemPrompt: Write.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
conditions:
  isShop: {description: It is the shop's., expression: '$contains(issue.key, "SHOP-")'}
  isOne: {description: It is this one., expression: 'issue.key = "OPS-42"'}
graph:
  $START:
    - {role: writer, condition: isShop, prompt: 'Mend {{ issue.key }}.'}
    - {role: writer, condition: isOne}
    - {role: $END, condition: null}
  writer:
    - {role: $END, condition: null}
"""


def test_templates_and_conditions_see_the_key(cloud: Jira, uwf: Uwf) -> None:
    assert uwf("workflow", "validate", write("sees.yaml", SEES)).json["findings"] == []
    uwf("workflow", "put", "sees.yaml")
    cloud.server.has_issue("SHOP-42")
    run = uwf("run", "sees", "SHOP-42", "--agent", "uwf-rehearse", env=cloud.server.environ)
    assert "Mend SHOP-42." in uwf("thread", "prompt", f"{run.lines[0]['thread']}@1").out


# What others write


def test_an_issue_of_5_mb_is_cut_and_the_prompt_says_so(cloud: Jira, uwf: Uwf) -> None:
    cloud.server.has_issue("SHOP-42", "It fails", "x" * 5_000_000, ("bob", "y" * 5_000_000))
    cloud.server.has("SHOP-42", "bob", f"{' ' * 5_000_000}.")
    payload = cloud.started()
    assert len(payload["prompt"]) < LONGEST_TEXT + LONGEST_COMMENTS
    assert "(the first 50,000 of 5,000,000 characters):" in payload["prompt"]
    assert uwf("verify").json["findings"] == []


def test_an_issue_without_a_text_has_none(cloud: Jira) -> None:
    cloud.server.has_issue("SHOP-42", "It fails", None)
    assert "Its text, by ann:\n\n```text\n\n```" in cloud.started()["prompt"]


@pytest.mark.parametrize("place", ["text", "comment"])
def test_a_document_in_place_of_a_text_is_not_taken_for_an_empty_one(cloud: Jira, place: str) -> None:
    document: Any = {"type": "doc", "version": 1, "content": []}
    cloud.server.has_issue("SHOP-42", "It fails", document if place == "text" else "x")
    if place == "comment":
        cloud.server.has("SHOP-42", "bob", document)
    assert "version 2" in cloud.start(check=8).error["hint"]


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"key": "SHOP-42"}', b"null", b"[" * 100_000, b"\xff{"])
def test_an_answer_that_is_no_issue_is_an_error(cloud: Jira, answer: bytes) -> None:
    cloud.server.failing["GET"] = [Failing(200, answer)]
    assert "did not answer with" in cloud.start(check=8).error["message"]


def test_an_error_does_not_repeat_the_login(cloud: Jira, root: Path) -> None:
    address = parse_issue(cloud.server.page("SHOP-42"), load_config(root))
    for secret in (TOKEN, cloud.server.authorization.partition(" ")[2]):
        cloud.server.failing["GET"] = [Failing(400, {"errorMessages": [f"Who is {secret}?"], "errors": {}})]
        with (
            JiraIssue(address, Login(TOKEN, "", user=USER), "") as issue,
            pytest.raises(ForgeDeclined, match=r"Who is …\?"),
        ):
            issue.read(1)


def test_nothing_that_others_wrote_is_outside_of_a_fence(cloud: Jira) -> None:
    text = "\n\n".join(item.text for item in INJECTIONS)
    cloud.server.has_issue("SHOP-42", text, text, ("bob", text), (text, "x"), author=text, labels=(text,))
    payload = cloud.started()
    harmless = (
        r"",
        r"Issue .*",
        r"Each text in a fence .*",
        r"tools, your rules, .*",
        r"Its (title|labels):",
    )
    harmless = (
        *harmless,
        r"Its text, by \S+ \(the first .*\):|Its text, by \S+:",
        r"Comment \d, by \S+, at \S+",
    )
    for line in outside_of_fences(payload["prompt"]):
        assert any(re.fullmatch(pattern, line) for pattern in harmless) or line.startswith("Comment "), line
    assert not [item for item in payload["prompt"] if not (item.isprintable() or item in "\n\t")]
    assert payload["issue"]["author"] == "somebody"
