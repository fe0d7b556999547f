"""A request of `uwf land` says what was found out about its tree, and the forge's job holds it against the thread."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import git
from conftest import Uwf
from forge_jobs import Forge, GitLab, Ran
from forge_server import TOKEN, forge_server
from landing_shop import Shop

TOKENS = {
    "github": "GH_ENTERPRISE_TOKEN",
    "gitlab": "GITLAB_TOKEN",
    "forgejo": "FORGEJO_TOKEN",
    "gitea": "GITEA_TOKEN",
}
BEGIN, END = "<!-- uwf claims ", " -->"


class Request(NamedTuple):
    """A request of a thread's work on a forge, whose repository has the thread too."""

    uwf: Uwf
    shop: Shop
    forge: Forge
    bodies: Callable[[], list[str]]

    def lands(self, prompt: str = "Add *two*\nIt is missing.") -> dict[str, Any]:
        thread = self.shop.accepted(prompt)
        if not self.uwf("remote", "list").json:
            self.uwf("remote", "add", "origin", self.url)
            self.uwf("push", "origin", thread)
        return dict(self.uwf("land", thread).json)

    def checks(self, command: str) -> None:
        """Have landings check with a command."""
        host = self.url.partition("://")[2].partition("/")[0]
        settings = {"forges": {host: self.forge.kind}, "land": {"checks": [command]}}
        self.shop.configured("".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items()))

    @property
    def url(self) -> str:
        return git("-C", self.shop.project, "config", "remote.origin.url")

    def checked(self, branch: str, body: str, claims: str = "") -> Ran:
        """The job of the printed file, which is on each change with `claims`."""
        options = ("--claims", claims) if claims else ()
        text = self.uwf("ci", "print", self.forge.kind, "--comment", *options).out
        return self.forge.pull_request(text, branch, "main", body=body)


@pytest.fixture(params=["github"])
def request_(
    request: pytest.FixtureRequest,
    uwf: Uwf,
    tmp_path: Path,
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Request]:
    kind = request.param
    shop = Shop(uwf, tmp_path, config)
    monkeypatch.chdir(shop.project)
    forge = Forge(tmp_path / "forge", kind)
    shutil.rmtree(forge.remote)
    shop.remote = forge.remote
    with forge_server(kind, repository=shop.remote) as server:
        server.token = TOKEN
        shop.with_remote(f"{server.web}.git")
        git("--git-dir", shop.remote, "config", "uploadpack.allowAnySHA1InWant", "true")
        git("config", "--global", f"url.{shop.remote}.insteadOf", f"{server.web}.git")
        shop.configured(f"forges: {{ '{server.url.partition('://')[2]}': {kind} }}\n")
        monkeypatch.setenv(TOKENS[kind], TOKEN)
        yield Request(uwf, shop, forge, lambda: [str(item["body"]) for item in server.changes.values()])


every_forge = pytest.mark.parametrize("request_", ["github", "gitlab", "forgejo", "gitea"], indirect=True)


def claims_in(body: str) -> dict[str, Any]:
    return dict(json.loads(body.partition(BEGIN)[2].partition(END)[0]))


def with_claims(body: str, value: object) -> str:
    before, _, rest = body.partition(BEGIN)
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}"


def checks_of(result: Any) -> dict[str, Any]:
    (check,) = (item for item in result["checks"] if item["kind"] == "claims")
    return dict(check)


@every_forge
def test_the_claims_of_a_landing_hold_on_the_forge(request_: Request, tmp_path: Path) -> None:
    landed = request_.lands()
    (body,) = request_.bodies()
    if request_.forge.kind == "gitlab":
        assert body.index(END) < 2700, "GitLab gives a job no more of a text"
        job = GitLab(request_.forge, tmp_path, landed["branch"], "main")
        done = job.run(CI_MERGE_REQUEST_DESCRIPTION=body)
        assert done.returncode == 0, done.stdout.decode()
        result = json.loads((job.checkout / "uwf-ci" / "result.json").read_text())
        summary = (job.checkout / "uwf-ci" / "summary.md").read_text()
    else:
        ran = request_.checked(landed["branch"], body)
        assert ran.code == 0, ran.log
        result, summary = ran.result, ran.summary
    check = checks_of(result)
    assert check["problems"] == []
    assert [(claim["what"], claim["step"], claim["by"]) for claim in check["claims"]] == [
        ("sh tests.sh exited with 0", None, "uwf land"),
        ("tests: passed", 2, "uwf-exec"),
        ("gate: merge", 3, claims_in(body)["claims"][2]["by"]),
    ]
    assert {claim["tree"] for claim in check["claims"]} == {landed["tree"]}
    assert "| holds | `gate: merge` |" in summary and landed["checks"][0]["sha256"] in summary


def test_the_claims_of_a_request_that_a_step_has_opened_hold_on_the_forge(request_: Request) -> None:
    request_.shop.with_landing_role()
    request_.checks("sh tests.sh")
    thread = request_.shop.accepted()
    request_.uwf("remote", "add", "origin", request_.url)
    request_.uwf("push", "origin", thread)
    request_.uwf("thread", "run", thread)
    (body,) = request_.bodies()
    ran = request_.checked("mend/add-two", body)
    assert ran.code == 0, ran.log
    assert [claim["what"] for claim in checks_of(ran.result)["claims"]] == [
        "sh tests.sh exited with 0",
        "tests: passed",
        "gate: merge",
    ]


def forged(body: str, other: str, thread: str) -> dict[str, tuple[str, str]]:
    """Forged texts by what they try, each with the code of its refusal; `other` is of another thread and tree."""
    claims = claims_in(body)
    own, tests, gate = claims["claims"]

    def changed(at: int, **fields: object) -> str:
        rows = [dict(row) for row in claims["claims"]]
        rows[at] |= fields
        return with_claims(body, {**claims, "claims": rows})

    def beside(**fields: object) -> str:
        return with_claims(body, {**claims, **fields})

    deep = "[" * 50_000
    return {
        "another request's": (other, "claim-other-tree"),
        "another request's, with the tree of this one": (
            with_claims(other, {**claims_in(other), "tree": claims["tree"]}),
            "claim-other-tree",
        ),
        "another tree": (beside(tree="1" * 40), "claim-other-tree"),
        "another thread": (beside(thread=claims_in(other)["thread"]), "claim-no-step"),
        "a thread that isn't there": (beside(thread="0" * 26), "claims-no-thread"),
        "another record": (beside(record="1" * 40), "claims-other-record"),
        "another check": (changed(0, node="0" * 13), "claim-no-log"),
        "a step as a check": (changed(1, step=None), "claim-no-step"),
        "another step": (changed(1, step=3), "claim-no-step"),
        "a step that changed the code": (changed(1, step=1), "claim-no-step"),
        "another node": (changed(1, node=claims_in(other)["claims"][1]["node"]), "claim-no-step"),
        "another log": (changed(0, log="1" * 64), "claim-other-log"),
        "another answer": (changed(2, log=tests["log"]), "claim-other-log"),
        "other words": (changed(1, what="security: passed"), "claim-otherwise"),
        "another person": (changed(2, by="The Boss"), "claim-otherwise"),
        "a claim twice": (beside(claims=[own, tests, gate, gate]), "claim-twice"),
        "claims twice": (f"{body}\n{BEGIN}{json.dumps(claims)}{END}\n", "claims-twice"),
        "truncated": (body[: body.index(END)], "claims-truncated"),
        "oversized": (with_claims(body, "[" + "1," * 40_000 + "1]"), "claims-too-large"),
        "an oversized text": (body + "x" * (1 << 20), "claims-too-large"),
        "too many": (beside(claims=[own] * 31), "claims-unreadable"),
        "none": (beside(claims=[]), "claims-unreadable"),
        "no JSON": (with_claims(body, "{"), "claims-unreadable"),
        "deep": (with_claims(body, deep), "claims-unreadable"),
        "a long number": (with_claims(body, "1" * 5000), "claims-unreadable"),
        "a key twice": (
            with_claims(body, json.dumps(claims)[:-1] + f',"tree":"{claims["tree"]}"}}'),
            "claims-unreadable",
        ),
        "another field": (beside(also=1), "claims-unreadable"),
        "a lacking field": (with_claims(body, {"thread": thread}), "claims-unreadable"),
        "another type": (changed(1, step=True), "claims-unreadable"),
        "a list for a claim": (beside(claims=[[]]), "claims-unreadable"),
        "a revision for a tree": (beside(tree="HEAD"), "claims-unreadable"),
        "a name for a thread": (beside(thread="--all"), "claims-unreadable"),
    }


def test_each_forgery_is_refused_by_name(uwf: Uwf, request_: Request, tmp_path: Path) -> None:
    thread = request_.lands()["thread"]
    request_.shop.adds("three")
    request_.lands("Add three")
    body, other = request_.bodies()
    tree = claims_in(body)["tree"]
    attempts = forged(body, other, thread)
    file = tmp_path / "request.md"

    def codes(text: str) -> set[str]:
        file.write_text(text)
        value = uwf("claims", file, "--tree", tree, check=7).json
        rows = [*value["refused"], *(row["refused"] for row in value["claims"] if row["refused"])]
        return {row["code"] for row in rows}

    refused = {name: codes(text) for name, (text, _) in attempts.items()}
    assert {name: code for name, (_, code) in attempts.items() if code not in refused[name]} == {}, refused
    file.write_text(body)
    assert uwf("claims", file, "--tree", tree).json["refused"] == []


@pytest.mark.parametrize("tree", ["HEAD", "4b825dc", "4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"])
def test_a_tree_is_named_by_its_whole_id(uwf: Uwf, hermetic: Path, tree: str) -> None:
    error = uwf("claims", "--tree", tree, input="", check=2).error
    assert "is no id of a tree" in error["message"] and "--tree $(git rev-parse HEAD^{tree})" in error["hint"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("other words", "claim-otherwise"),
        ("another request's", "claim-other-tree"),
        ("deep", "claims-unreadable"),
    ],
)
def test_the_job_fails_by_a_forgery_and_shows_it(request_: Request, name: str, code: str) -> None:
    landed = request_.lands()
    request_.shop.adds("three")
    request_.lands("Add three")
    body, other = request_.bodies()
    ran = request_.checked(landed["branch"], forged(body, other, landed["thread"])[name][0])
    assert ran.code == 7, ran.log
    assert code in {problem["code"] for problem in checks_of(ran.result)["problems"]}
    errors = [item for item in ran.commands if item.name == "error"]
    assert any(code in item.properties["title"] for item in errors)
    assert code in ran.report("junit.xml") and code in ran.report("uwf.sarif") and code in ran.summary


@pytest.mark.parametrize(("kind", "code"), [("effects", "claim-no-log"), ("archive", "claims-no-thread")])
def test_what_is_not_pushed_is_no_evidence(request_: Request, kind: str, code: str) -> None:
    landed = request_.lands()
    (body,) = request_.bodies()
    for ref in request_.forge.git("for-each-ref", "--format=%(refname)", f"refs/uwf/{kind}").splitlines():
        request_.forge.git("update-ref", "-d", ref)
    ran = request_.checked(landed["branch"], body)
    assert ran.code == 7, ran.log
    assert code in {problem["code"] for problem in checks_of(ran.result)["problems"]}


def test_commits_on_top_of_what_was_claimed_are_not_covered(request_: Request) -> None:
    landed = request_.lands()
    (body,) = request_.bodies()
    project = request_.shop.project
    git("-C", project, "fetch", "-q", "origin")
    git("-C", project, "checkout", "-q", landed["branch"])
    request_.shop.moves("more.txt", "x")
    git("-C", project, "push", "-q", "origin", landed["branch"])
    ran = request_.checked(landed["branch"], body)
    assert ran.code == 7, ran.log
    codes = {problem["code"] for problem in checks_of(ran.result)["problems"]}
    assert codes == {"claim-other-tree"}


def test_a_target_that_moves_under_a_request_leaves_its_claims(request_: Request) -> None:
    landed = request_.lands()
    (body,) = request_.bodies()
    request_.shop.moves("late.txt", "x")
    ran = request_.checked(landed["branch"], body)
    assert ran.code == 0, ran.log
    assert checks_of(ran.result)["summary"].startswith("3 of 3 claims")


@pytest.mark.parametrize(("claims", "status"), [("", 13), ("optional", 0), ("required", 14)])
def test_a_request_without_claims_fails_only_if_they_are_required(
    request_: Request, claims: str, status: int
) -> None:
    landed = request_.lands()
    ran = request_.checked(landed["branch"], "Mine.", claims)
    assert ran.code == status, ran.log
    if claims:
        assert "the request has no claims" in ran.summary


@pytest.mark.parametrize("request_", ["gitlab"], indirect=True)
def test_a_text_that_gitlab_cut_is_not_one_without_claims(request_: Request, tmp_path: Path) -> None:
    landed = request_.lands()
    job = GitLab(request_.forge, tmp_path, landed["branch"], "main")
    done = job.run(CI_MERGE_REQUEST_DESCRIPTION="x" * 2700, CI_MERGE_REQUEST_DESCRIPTION_IS_TRUNCATED="true")
    assert done.returncode == 7 and b"claims-truncated" in done.stdout


def test_what_an_issue_or_a_command_says_is_no_claim(request_: Request) -> None:
    stolen = f"{BEGIN}{{}}{END}"
    request_.checks(f"echo '{stolen}'")
    landed = request_.lands(f"{stolen}\n\n{stolen}\n> {stolen}\n@team fixes #1 --> /merge")
    (body,) = request_.bodies()
    assert body.count(BEGIN) > 1
    assert request_.uwf("claims", write(body), "--tree", landed["tree"]).json["refused"] == []
    line = next(line for line in body.splitlines() if line.startswith(BEGIN))
    assert not set("@#/<>-`!") & set(line[len(BEGIN) : -len(END)])


def write(body: str) -> Path:
    file = Path("..") / "body.md"
    file.write_text(body)
    return file


def test_a_failed_check_is_no_passed_one(request_: Request, uwf: Uwf) -> None:
    landed = request_.lands()
    (body,) = request_.bodies()
    request_.checks("false")
    uwf("land", landed["thread"], check=6)
    failed = uwf("effect", "list", landed["thread"]).json[-1]
    assert failed["reason"] == "exited with 1"
    claims = claims_in(body)
    row = {**claims["claims"][0], "node": failed["effect"], "log": failed["sha256"]}
    text = with_claims(body, {**claims, "claims": [row]})
    value = uwf("claims", write(text), "--tree", landed["tree"], check=7).json
    assert value["claims"][0]["refused"]["code"] == "claim-otherwise"
