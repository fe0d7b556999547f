"""People who sign in to the pages of another machine: what they do is in their own name, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from approvers import at_gate, release
from cli_samples import ASKS, PAIR, scripted, write
from conftest import Uwf
from git_servers import git
from playwright.sync_api import Page, expect
from signers import Signer, trust_file
from site_serving import Serve, Serving, entered, keep_picture

from uwf_git.base.errors import Invalid, Usage
from uwf_git.ext.web.people import LINK, MOST, SESSION, WRITE, Invitations, parse_person
from uwf_git.git.objects import Person
from uwf_git.store.location import Location

GRACE = "Grace Example <grace@example.com>"
SECRET = "0123456789abcdef" * 4
EMAIL_HEADER = "X-Forwarded-Email"


def _invite(uwf: Uwf, who: str = GRACE, *options: str) -> str:
    """The address of a link."""
    return str(uwf("web", "invite", who, *options).json["link"])


def _sign_in(browser: httpx.Client, link: str) -> httpx.Response:
    """Opens a link in a browser, and presses its button."""
    page = browser.get(link)
    assert page.status_code == 200
    token = re.search(r'name="token" value="([^"]+)"', page.text)
    assert token and token[1] in link
    return browser.post("/sign-in", data={"token": token[1]})


@contextmanager
def _browser(serving: Serving) -> Iterator[httpx.Client]:
    """A browser that nobody has signed in to, and that sends forms from the pages."""
    with httpx.Client(base_url=serving.address, trust_env=False, verify=False, timeout=30) as client:
        client.headers["Origin"] = serving.address
        yield client


@contextmanager
def _signed_in(serving: Serving, link: str) -> Iterator[httpx.Client]:
    with _browser(serving) as browser:
        assert _sign_in(browser, link).status_code == 303
        yield browser


def _head(uwf: Uwf, thread: str) -> str:
    return str(uwf("thread", "show", thread).json["head"])


def _by_ref(root: Path) -> dict[str, str]:
    """Who made the object of each ref."""
    form = "%(refname) %(taggername) %(taggeremail)%(committername) %(committeremail)"
    lines = git("--git-dir", root / "store.git", "for-each-ref", f"--format={form}", "refs/uwf").splitlines()
    return {ref: by.strip() for ref, _, by in (line.partition(" ") for line in lines)}


def test_a_link_signs_in_one_browser_once(serve: Serve, uwf: Uwf, thread: str) -> None:
    serving = serve("--write")
    link = _invite(uwf)
    assert link.startswith(f"{serving.address}/sign-in?token=")
    with _browser(serving) as grace, _browser(serving) as thief:
        for _ in range(2):  # a program that looks at links in messages uses none up
            assert "Grace Example &lt;grace@example.com&gt;" in thief.get(link).text
        assert thief.get("/").status_code == 401
        token = {"token": link.partition("=")[2]}
        assert thief.request("HEAD", "/sign-in", data=token).status_code == 401
        assert _sign_in(grace, link).headers["location"] == "/"
        assert "as <bdi>Grace Example</bdi>" in grace.get("/").text
        again = thief.post("/sign-in", data=token)
        assert again.status_code == 401 and "was used already" in again.text
        assert thief.get(link).status_code == 401 and thief.get("/").status_code == 401


def test_of_two_who_use_a_link_at_once_one_is_signed_in(serve: Serve, uwf: Uwf, thread: str) -> None:
    serving = serve("--write")
    token = _invite(uwf).partition("=")[2]

    def use(_number: int) -> int:
        with _browser(serving) as browser:
            return browser.post("/sign-in", data={"token": token}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(use, range(8))) == [303] + [401] * 7


def test_a_link_is_used_up_only_by_its_own_page(serve: Serve, uwf: Uwf, thread: str) -> None:
    """Another site that sends the form would sign a browser in as whom it likes."""
    serving = serve("--write")
    link = _invite(uwf)
    token = {"token": link.partition("=")[2]}
    with _browser(serving) as browser:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert browser.post("/sign-in", data=token, headers=headers).status_code == 403
        policy = browser.get(link, headers={"Sec-Fetch-Site": "cross-site"}).headers[
            "content-security-policy"
        ]
        assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
        assert _sign_in(browser, link).status_code == 303


def test_all_that_a_person_does_on_the_pages_is_in_their_name(
    serve: Serve, uwf: Uwf, root: Path, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    serving = serve("--write", "--run")
    before = _by_ref(root)
    own = f"{next(iter(before.values()))}"
    assert "Grace" not in own
    with _signed_in(serving, _invite(uwf)) as grace:
        answer = {"head": _head(uwf, thread), "option": "2", "by": "Bob <bob@example.com>", "author": "Bob"}
        assert grace.post(f"/thread/{thread}/answer", data=answer).status_code == 303
        begun = grace.post("/start", data={"workflow": "pair", "prompt": "Hers", "maxSteps": "1"})
        started = begun.headers["location"].removeprefix("/thread/")
        forked = grace.post(f"/thread/{thread}/fork", data={"at": "1"}).headers["location"].rpartition("/")[2]
        assert grace.post(f"/thread/{started}/pause", data={"reason": "later"}).status_code == 303
        assert grace.post(f"/thread/{forked}/kill", data={"sure": "yes"}).status_code == 303
        killed = {"thread": f"{thread} {_head(uwf, thread)}", "sure": "yes"}
        assert grace.post("/threads/kill", data=killed).status_code == 303
    after = {ref: by for ref, by in _by_ref(root).items() if before.get(ref) != by or ref not in before}
    assert {ref.split("/")[2] for ref in after} >= {"threads", "archive", "forks", "paused"}
    assert set(after.values()) == {"Grace Example <grace@example.com>"}
    assert uwf("thread", "show", started).json["paused"]["by"] == GRACE
    log = git(
        "--git-dir", root / "store.git", "log", "-1", "--format=%cn <%ce>", f"refs/uwf/archive/{thread}"
    )
    assert log.strip() == GRACE


def test_the_printed_address_is_still_the_servers_user(
    serve: Serve, uwf: Uwf, root: Path, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    serving = serve("--write")
    own = set(_by_ref(root).values())
    with _signed_in(serving, _invite(uwf)) as grace:
        assert grace.get("/").status_code == 200
        for client in entered(serving):
            assert 'class="person"' not in client.get("/").text
            client.headers["Origin"] = serving.address
            form = {"head": _head(uwf, thread), "option": "2"}
            assert client.post(f"/thread/{thread}/answer", data=form).status_code == 303
    assert set(_by_ref(root).values()) == own


def test_the_same_answer_of_two_people_at_once_is_not_taken_for_one(serve: Serve, uwf: Uwf) -> None:
    thread = at_gate(uwf)
    serving = serve("--write")
    links = [_invite(uwf, f"{name} <{name}@example.invalid>") for name in ("ann", "bob")]
    form = {"head": _head(uwf, thread), "pick1": "1"}
    with (
        _signed_in(serving, links[0]) as ann,
        _signed_in(serving, links[1]) as bob,
        ThreadPoolExecutor(2) as pool,
    ):

        def approve(client: httpx.Client) -> int:
            deadline = time.monotonic() + 30
            while (status := client.post(f"/thread/{thread}/answer", data=form).status_code) == 409:
                assert time.monotonic() < deadline  # the other one is at it
            return status

        assert list(pool.map(approve, (ann, bob))) == [303, 303]
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []


def test_somebody_signed_in_approves_as_themselves_and_not_as_the_server(serve: Serve, uwf: Uwf) -> None:
    thread = at_gate(uwf)
    serving = serve("--write")
    form = {"head": _head(uwf, thread), "pick1": "1"}
    with _signed_in(serving, _invite(uwf)) as grace:
        refused = grace.post(f"/thread/{thread}/answer", data=form)
        assert "may not answer as gate" in refused.text
    with _signed_in(serving, _invite(uwf, "Ann <ann@example.invalid>")) as ann:
        page = ann.get(f"/thread/{thread}").text
        assert "You answer as Ann &lt;ann@example.invalid&gt;" in page
        assert thread in ann.get("/?for=me").text
        assert ann.post(f"/thread/{thread}/answer", data=form).status_code == 303
        assert thread not in ann.get("/?for=me").text
    (given,) = uwf("thread", "show", thread).json["approvals"]["given"]
    assert (given["by"]["name"], given["counts"]) == ("Ann", True)


def test_who_began_a_thread_on_the_pages_may_not_approve_it(serve: Serve, uwf: Uwf) -> None:
    at_gate(uwf, release("[ann@example.invalid, bob@example.invalid]", quorum=1, notAuthor=True))
    serving = serve("--write")
    with _signed_in(serving, _invite(uwf, "Ann <ann@example.invalid>")) as ann:
        begun = ann.post("/start", data={"workflow": "release", "prompt": "Mine"})
        thread = begun.headers["location"].rpartition("/")[2]
        uwf("thread", "step", thread, "--agent", 'uwf-exec echo \'{"text": "v1"}\'')
        refused = ann.post(f"/thread/{thread}/answer", data={"head": _head(uwf, thread), "pick1": "1"})
        assert "made what gate" in refused.text
    assert uwf("thread", "show", thread).json["approvals"]["given"] == []


def test_nothing_is_signed_in_the_name_of_somebody_who_signed_in(
    serve: Serve, uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """The server's user signs all commits; Ann has a key in the policy, elsewhere."""
    eve, ann = Signer(tmp_path, "eve"), Signer(tmp_path, "ann")
    for name, value in eve.environment.items():
        monkeypatch.setenv(name, value)
    thread = at_gate(uwf, release("[ann@example.invalid, bob@example.invalid]", quorum=1))
    asking = str(uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"])
    uwf("thread", "step", asking, "--agent", scripted(ASKS))
    trusted = tmp_path / "trust.yaml"
    trusted.write_text(trust_file({"eve": eve, "ann": ann}, maintainers="eve"))
    uwf("trust", "set", trusted)
    serving = serve("--write")
    with _signed_in(serving, _invite(uwf, "ann <ann@example.invalid>")) as client:
        refused = client.post(f"/thread/{thread}/answer", data={"head": _head(uwf, thread), "pick1": "1"})
        assert "must be signed" in refused.text and "use uwf where yours is" in refused.text
        form = {"head": _head(uwf, asking), "option": "1"}
        assert client.post(f"/thread/{asking}/answer", data=form).status_code == 303
    assert uwf("thread", "show", thread).json["approvals"]["given"] == []
    step = git("--git-dir", root / "store.git", "cat-file", "commit", f"refs/uwf/threads/{asking}")
    assert "committer ann <ann@example.invalid>" in step and "gpgsig" not in step


def test_what_a_policy_wants_signed_is_refused_before_anything_is_written(
    serve: Serve, uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    eve = Signer(tmp_path, "eve")
    for name, value in eve.environment.items():
        monkeypatch.setenv(name, value)
    uwf("workflow", "put", write("pair.yaml", PAIR))
    asking = str(uwf("thread", "start", "pair", "-p", "x").json["thread"])
    uwf("thread", "step", asking, "--agent", scripted(ASKS))
    trusted = tmp_path / "trust.yaml"
    rules = '[{threads: "*", require: signed}]'
    trusted.write_text(trust_file({"eve": eve}, maintainers="eve", rules=rules))
    uwf("trust", "set", trusted)
    serving = serve("--write")
    before = _by_ref(root)
    with _signed_in(serving, _invite(uwf)) as grace:
        posts = {
            f"/thread/{asking}/answer": {"head": _head(uwf, asking), "option": "1"},
            f"/thread/{asking}/kill": {"sure": "yes"},
            f"/thread/{asking}/pause": {"reason": "x"},
            f"/thread/{asking}/fork": {"at": "0"},
            "/start": {"workflow": "pair", "prompt": "x"},
        }
        for path, form in posts.items():
            refused = grace.post(path, data=form)
            assert refused.status_code >= 400 and "the trust policy wants" in refused.text, path
            assert "use uwf where yours is" in refused.text, path
    assert _by_ref(root) == before


def test_an_invitation_allows_no_more_than_it_says_and_the_server_does(
    serve: Serve, uwf: Uwf, thread: str
) -> None:
    form = {"head": "another", "sure": ""}
    served = {"": frozenset[str](), "--write": frozenset({"kill"}), "--run": frozenset({"kill", "step"})}
    invited = {"--read": served[""], "--write": served["--write"], "--run": served["--run"]}
    for flag in served:
        serving = serve(*([flag] if flag else []))
        for option in invited:
            with _signed_in(serving, _invite(uwf, GRACE, option)) as grace:
                statuses = {
                    name: grace.post(f"/thread/{thread}/{name}", data=form).status_code
                    for name in ("kill", "step")
                }
                page = grace.get(f"/thread/{thread}").text
            taken = {name for name, status in statuses.items() if status not in (404, 405)}
            assert taken == served[flag] & invited[option], (flag, option, statuses)
            assert (f'action="/thread/{thread}/kill"' in page) is ("kill" in taken)


def test_a_page_of_one_person_is_no_answer_to_another(serve: Serve, uwf: Uwf, thread: str) -> None:
    """A browser in which somebody else signs in shows no page that it has kept."""
    serving = serve("--write")
    with (
        _signed_in(serving, _invite(uwf)) as grace,
        _signed_in(serving, _invite(uwf, "Bob <bob@example.com>")) as bob,
    ):
        tag = ""
        while tag != (tag := grace.get("/threads").headers["etag"]):
            pass  # what changed a moment ago may do so again unseen
        assert grace.get("/threads", headers={"If-None-Match": tag}).status_code == 304
        assert bob.get("/threads", headers={"If-None-Match": tag}).status_code == 200


def test_revoking_ends_the_sessions_and_links_of_a_person(
    serve: Serve, uwf: Uwf, thread: str, tmp_path: Path
) -> None:
    uwf("web", "invite", GRACE, check=2)  # no server has said yet where it is
    serving = serve("--write")
    link = _invite(uwf)
    with (
        _signed_in(serving, _invite(uwf)) as grace,
        _signed_in(serving, _invite(uwf, "Bob <bob@example.com>")) as bob,
    ):
        listed = uwf("web", "invite", "--list").json
        assert sorted((item["email"], item["kind"]) for item in listed) == [
            ("bob@example.com", "session"),
            ("grace@example.com", "link"),
            ("grace@example.com", "session"),
        ]
        assert uwf("web", "invite", "--revoke", "GRACE@example.com").json["revoked"] == 2
        assert grace.get("/").status_code == 401 and grace.get(link).status_code == 401
        assert bob.get("/").status_code == 200
    uwf("web", "invite", "--revoke", "grace@example.com", check=3)


def test_a_link_leads_to_a_server_that_runs(serve: Serve, uwf: Uwf) -> None:
    older, newer = serve("--write", is_cold=True), serve("--write", is_cold=True)
    assert _invite(uwf).startswith(f"{newer.address}/")
    newer.process.kill()
    newer.process.wait()
    with _signed_in(older, _invite(uwf)) as grace:
        assert grace.get("/").status_code == 200
    older.process.kill()
    older.process.wait()
    alone = uwf("web", "invite", GRACE)
    assert "no server of this store runs now" in alone.err and alone.json["link"]


def test_a_stream_ends_with_the_session(uwf: Uwf, hermetic: Path) -> None:
    """As a page at work reads it: nothing more is sent once the person may not read."""
    from uwf_git.ext.web.access import Access

    uwf("init")
    invitations = Invitations(Location(hermetic, hermetic / "store.git"))
    session = invitations.redeem(invitations.invite(Person("Ada", "grace@example.com"), WRITE))
    assert session is not None
    sent: list[bytes] = []

    async def stream(_scope: object, _receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        for number in range(6):
            if number == 3:
                invitations.revoke("grace@example.com")
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})  # type: ignore[operator]

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message.get("body", b""))

    access = Access({WRITE: stream}, ["http://127.0.0.1:1"], 1, invitations)
    headers = [
        (b"host", b"127.0.0.1:1"),
        (b"cookie", f"uwf-1-{invitations.path.stem[:8]}-person={session}".encode()),
    ]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/thread/x/events",
        "raw_path": b"/",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(access(scope, receive, send))
    assert b"".join(sent) == b"012"


def test_signing_out_ends_the_session_and_leaves_the_browser_to_its_user(
    serve: Serve, uwf: Uwf, thread: str
) -> None:
    """The user may open a link in the browser that the printed address has let in."""
    serving = serve("--write")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        assert client.post("/sign-out").status_code in (404, 405)
        assert _sign_in(client, _invite(uwf)).status_code == 303
        kept = dict(client.cookies)
        assert "Grace Example" in client.get("/").text
        assert client.post("/sign-out", headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.post("/sign-out").status_code == 303
        assert "Grace Example" not in client.get("/").text
        session = {name: value for name, value in kept.items() if name.endswith("-person")}
        with httpx.Client(base_url=serving.address, cookies=session, trust_env=False, verify=False) as thief:
            assert len(session) == 1 and thief.get("/").status_code == 401
    assert uwf("web", "invite", "--list").json == []


def test_a_session_goes_on_when_the_server_is_started_again(serve: Serve, uwf: Uwf, thread: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    first = serve("--write", "--port", port)
    with _signed_in(first, _invite(uwf)) as grace:
        first.process.terminate()
        first.process.wait(20)
        serve("--write", "--port", port)
        assert "as <bdi>Grace Example</bdi>" in grace.get("/").text


def test_signing_in_and_out_at_one_store_changes_nothing_at_another(
    serve: Serve, uwf: Uwf, hermetic: Path, thread: str
) -> None:
    """A browser sends the cookies of a host to all its ports, and keeps one of each name."""
    other = ("--root", str(hermetic / "other"))
    uwf("init", *other)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [str(free.getsockname()[1]) for free in (one, two)]
    first, second = serve("--write", "--port", ports[0]), serve("--write", "--port", ports[1], *other)
    links = [_invite(uwf), _invite(uwf, "Bob <bob@example.com>", *other)]
    origins = [{"Origin": serving.address} for serving in (first, second)]

    def names() -> list[str | None]:
        pages = [browser.get(f"{serving.address}/").text for serving in (first, second)]
        return [match and match[1] for match in (re.search("as <bdi>([^<]+)", page) for page in pages)]

    def sign_in(number: int) -> None:
        form = {"token": links[number].partition("=")[2]}
        address = links[number].partition("?")[0]
        assert browser.post(address, data=form, headers=origins[number]).status_code == 303

    with httpx.Client(trust_env=False, verify=False, timeout=30) as browser:
        sign_in(0)
        assert names() == ["Grace Example", None]
        sign_in(1)
        assert names() == ["Grace Example", "Bob"]
        # Also not if one was at the other's port before.
        for serving in (first, second):
            serving.process.terminate()
            serving.process.wait(20)
        first = serve("--write", "--port", ports[0], *other)
        links[0] = _invite(uwf, "Eve <eve@example.com>", *other)
        assert browser.get(f"{first.address}/").status_code == 401
        sign_in(0)
        first.process.terminate()
        first.process.wait(20)
        first, second = serve("--write", "--port", ports[0]), serve("--write", "--port", ports[1], *other)
        assert names() == ["Grace Example", "Bob"]
        assert browser.post(f"{first.address}/sign-out", headers=origins[0]).status_code == 303
        assert names() == [None, "Bob"]


def test_links_and_sessions_expire(hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invitations = Invitations(Location(hermetic, hermetic / "store.git"))
    by = Person("Ada", "grace@example.com")
    link = invitations.invite(by, WRITE)
    session = invitations.redeem(invitations.invite(by, WRITE))
    assert session is not None and invitations.find(LINK, link) and invitations.find(SESSION, session)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 24 * 3600 + 1)
    assert invitations.find(LINK, link) is None and invitations.redeem(link) is None
    assert invitations.find(SESSION, session)
    monkeypatch.setattr(time, "time", lambda: now + 30 * 24 * 3600 + 1)
    assert invitations.find(SESSION, session) is None and invitations.all() == ()


def test_no_secret_is_written_and_only_the_user_reads_the_rest(serve: Serve, uwf: Uwf, thread: str) -> None:
    serving = serve("--write")
    link = _invite(uwf)
    unused = _invite(uwf, "Bob <bob@example.com>")
    with _signed_in(serving, link) as grace:
        session = next(iter(grace.cookies.values()))
    (file,) = Path("~/.local/state/uwf/web").expanduser().glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    for secret in (link.partition("=")[2], unused.partition("=")[2], session):
        assert secret not in text and len(secret) >= 43
    everything = b"".join(
        path.read_bytes()
        for path in Path.home().rglob("*")
        if path.is_file() and path.stat().st_size < 1 << 20
    )
    assert session.encode() not in everything


def test_a_file_that_others_may_write_lets_nobody_in(serve: Serve, uwf: Uwf, thread: str) -> None:
    serving = serve("--write")
    with _signed_in(serving, _invite(uwf)) as grace:
        (file,) = Path("~/.local/state/uwf/web").expanduser().glob("*.json")
        good = file.read_bytes()
        file.chmod(0o666)
        assert grace.get("/").status_code == 401
        assert "others than you" in uwf("web", "invite", "--list", check=1).error["message"]
        file.chmod(0o600)
        assert grace.get("/").status_code == 200
        for damaged in (b"{", b"[]", b'{"address": "", "people": [1]}', good.replace(b'"write"', b'"all"')):
            file.write_bytes(damaged)
            assert grace.get("/").status_code == 401, damaged
        file.unlink()
        file.symlink_to("/dev/zero")
        assert grace.get("/").status_code == 401


def test_the_store_alone_lets_nobody_in(serve: Serve, uwf: Uwf, root: Path, thread: str) -> None:
    """Whoever may write the store, and not the user's home, has no say in who signs in."""
    serving = serve("--write")
    _invite(uwf)
    names = [
        path
        for path in (root / "store.git").rglob("*")
        if path.is_file() and b"grace@example.com" in path.read_bytes()
    ]
    assert names == []
    (root / "store.git/uwf/web").mkdir(parents=True)
    (file,) = Path("~/.local/state/uwf/web").expanduser().glob("*.json")
    forged = json.loads(file.read_text())
    (root / f"store.git/uwf/web/{file.name}").write_text(json.dumps(forged))
    uwf("web", "invite", "--revoke", "grace@example.com")
    with _browser(serving) as browser:
        assert browser.get("/").status_code == 401
    assert uwf("web", "invite", "--list").json == []


@pytest.mark.parametrize(
    "text",
    [
        "Ada",
        "",
        "<>",
        "Ada <>",
        "Ada <ada>",
        "Ada <grace@example.com> <bob@example.com>",
        "Ada <grace@example.com>, Bob <bob@example.com>",
        "grace@example.com, bob@example.com",
        "grace@example.com bob@example.com",
        "A\nda <grace@example.com>",
        "Ada\x1b[31m <grace@example.com>",
        "Ada\u202eelpmaxE <grace@example.com>",
        "Ad\u200ba <grace@example.com>",
        "Ada\u2028 B <grace@example.com>",
        "Ada\0 <grace@example.com>",
        "Ada <ada@exa\u202emple.com>",
        "Ada <ada@ex ample.com>",
        "Ada <a>b@example.com>",
        f"{'A' * 101} <grace@example.com>",
        f"{'a' * 10_000}@example.com",
        "Ada. <grace@example.com>",
        "Ada <grace@example.com",
        "Ada <--option@example.com\n>",
    ],
)
def test_a_name_that_is_not_one_or_looks_like_another_is_refused(text: str) -> None:
    with pytest.raises(Usage):
        parse_person(text)


@pytest.mark.parametrize(
    ("text", "name", "email"),
    [
        (GRACE, "Grace Example", "grace@example.com"),
        ("grace@example.com", "grace@example.com", "grace@example.com"),
        ("Zoë Ørsted <zoe+x@example.co.uk>", "Zoë Ørsted", "zoe+x@example.co.uk"),
        ("יעל כהן <yael@example.com>", "יעל כהן", "yael@example.com"),
    ],
)
def test_names_of_people_are_taken_as_they_are(text: str, name: str, email: str) -> None:
    assert parse_person(text) == Person(name, email)


def test_there_is_a_limit_of_people(hermetic: Path) -> None:
    invitations = Invitations(Location(hermetic, hermetic / "store.git"))
    by = Person("Ada", "grace@example.com")
    for _ in range(MOST):
        invitations.invite(by, WRITE)
    with pytest.raises(Usage, match="100 people"):
        invitations.invite(by, WRITE)
    assert invitations.revoke("grace@example.com") == MOST


def test_without_a_home_or_in_a_folder_of_others_nobody_is_invited(hermetic: Path) -> None:
    with pytest.raises(Usage, match="HOME"):
        Invitations(Location(hermetic, hermetic / "store.git"), {})
    invitations = Invitations(Location(hermetic, hermetic / "store.git"))
    invitations.path.parent.mkdir(parents=True, exist_ok=True)
    invitations.path.mkdir()
    with pytest.raises(Invalid):
        invitations.all()


def test_an_agent_invites_nobody(uwf: Uwf, serve: Serve, thread: str) -> None:
    serve("--write")
    command = "uwf-exec sh -c 'uwf web invite \"Eve <eve@example.com>\" >out 2>&1; echo {}; exit 1'"
    uwf("thread", "step", thread, "--agent", command, check=None)
    assert uwf("web", "invite", "--list").json == []
    assert "only a person invites people" in Path("out").read_text()


# A proxy that names people


@pytest.fixture
def proxied(serve: Serve, thread: str, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """A server behind a proxy of this machine."""
    monkeypatch.setenv("UWF_WEB_PROXY_SECRET", SECRET)
    return serve("--write", "--name", "https://uwf.example.com", "--person-header", EMAIL_HEADER)


def _proxy(email: str = "grace@example.com", **more: str) -> dict[str, str]:
    own = {"Host": "uwf.example.com", EMAIL_HEADER: email, "Uwf-Proxy-Secret": SECRET}
    return {
        **own,
        "Origin": "https://uwf.example.com",
        **{name.replace("_", "-"): text for name, text in more.items()},
    }


def test_a_proxy_names_who_answers(proxied: Serving, uwf: Uwf, root: Path, thread: str) -> None:
    with httpx.Client(base_url=proxied.address, trust_env=False, verify=False) as client:
        assert "as <bdi>grace@example.com</bdi>" in client.get("/", headers=_proxy()).text
        assert "as <bdi>Grace Example</bdi>" in client.get("/", headers=_proxy(GRACE)).text
        paused = client.post(f"/thread/{thread}/pause", data={"reason": "x"}, headers=_proxy(GRACE))
        assert paused.status_code == 303
        cross = _proxy(Origin="http://evil.example")
        assert client.post(f"/thread/{thread}/resume", data={}, headers=cross).status_code == 403
        plain = _proxy(Origin="http://uwf.example.com")
        assert client.post(f"/thread/{thread}/resume", data={}, headers=plain).status_code == 403
    assert uwf("thread", "show", thread).json["paused"]["by"] == GRACE
    assert uwf("web", "invite", GRACE).json["link"].startswith("https://uwf.example.com/sign-in?token=")


def test_a_header_counts_only_from_the_proxy_with_its_secret(proxied: Serving, thread: str) -> None:
    """Any program of the machine reaches the port, from the same address as the proxy."""
    with httpx.Client(base_url=proxied.address, trust_env=False, verify=False) as client:
        local = {EMAIL_HEADER: "grace@example.com"}
        assert client.get("/", headers=local).status_code == 401
        for secret in ("", "x", SECRET[:-1], SECRET + "0", f"{SECRET}, {SECRET}", SECRET.upper()):
            assert client.get("/", headers={**local, "Uwf-Proxy-Secret": secret}).status_code == 401, secret
        assert client.get("/", headers={"Uwf-Proxy-Secret": SECRET}).status_code == 401
        assert client.get("/", headers={**local, "Uwf-Proxy-Secret": SECRET}).status_code == 200
        assert client.get("/", headers={**_proxy(), "Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ada",
        "grace@example.com, eve@example.com",
        "Ada <grace@example.com> <eve@example.com>",
        "a\u00adda@example.com",
    ],
)
def test_a_header_that_names_nobody_or_several_is_refused(proxied: Serving, value: str) -> None:
    headers = [*((name, text.encode()) for name, text in _proxy().items() if name != EMAIL_HEADER)]
    with httpx.Client(base_url=proxied.address, trust_env=False, verify=False) as client:
        answer = client.get("/", headers=[*headers, (EMAIL_HEADER, value.encode())])  # type: ignore[list-item]
        assert answer.status_code == 401 and "The proxy names nobody" in answer.text
        for second in (b"eve@example.com", b"Eve <eve@example.com>", b""):
            both = [(EMAIL_HEADER, b"grace@example.com"), (EMAIL_HEADER.lower(), second)]
            for twice in (both, both[::-1]):
                assert client.get("/", headers=[*headers, *twice]).status_code == 401, twice  # type: ignore[list-item]


def test_a_proxys_word_goes_before_the_cookie_that_a_browser_brings(proxied: Serving, thread: str) -> None:
    for client in entered(proxied):
        assert 'class="person"' not in client.get("/").text
        assert "as <bdi>grace@example.com</bdi>" in client.get("/", headers=_proxy()).text
        assert client.get("/", headers=_proxy("")).status_code == 401


def test_a_proxy_elsewhere_is_believed_only_from_its_address(
    serve: Serve, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UWF_WEB_PROXY_SECRET", SECRET)
    serving = serve("--person-header", EMAIL_HEADER, "--trust-proxy", "192.0.2.7")
    with httpx.Client(base_url=serving.address, trust_env=False, verify=False) as client:
        headers = {
            EMAIL_HEADER: "grace@example.com",
            "Uwf-Proxy-Secret": SECRET,
            "X-Forwarded-For": "192.0.2.7",
        }
        assert client.get("/", headers=headers).status_code == 401


def test_without_a_long_secret_no_header_names_anybody(
    uwf: Uwf, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = uwf("web", "--no-open", "--person-header", EMAIL_HEADER, check=2).error
    assert "needs a secret" in refused["message"] and "UWF_WEB_PROXY_SECRET" in refused["hint"]
    monkeypatch.setenv("UWF_WEB_PROXY_SECRET", "short")
    assert "needs a secret" in uwf("web", "--person-header", EMAIL_HEADER, check=2).error["message"]
    assert "not a header" in uwf("web", "--person-header", "X: y\r\n", check=2).error["message"]
    monkeypatch.setenv("UWF_WEB_PROXY_SECRET", SECRET)
    wrong = uwf("web", "--person-header", EMAIL_HEADER, "--trust-proxy", "proxy.example", check=2).error
    assert "not an address" in wrong["message"]
    assert "--person-header" in uwf("web", "--trust-proxy", "192.0.2.7", check=2).error["hint"]


def test_agents_do_not_inherit_the_secret_of_the_proxy(
    serve: Serve, uwf: Uwf, thread: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "config.yaml").write_text(
        f"defaultAgent: shows\nagents: {{ shows: {{ command: uwf-exec sh -c 'env >{Path.cwd()}/seen; exit 1' }} }}\n"
    )
    monkeypatch.setenv("UWF_WEB_PROXY_SECRET", SECRET)
    serving = serve("--run", "--person-header", EMAIL_HEADER)
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        assert client.post(f"/thread/{thread}/step", data={"head": _head(uwf, thread)}).status_code == 303
    deadline = time.monotonic() + 60
    while not (seen := Path("seen")).exists() or "PATH=" not in seen.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert SECRET not in seen.read_text()


def test_a_person_signs_in_and_answers_in_a_browser(
    serve: Serve, uwf: Uwf, browser_page: Page, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    serving = serve("--write")
    browser_page.goto(_invite(uwf))
    expect(browser_page.get_by_text(GRACE)).to_be_visible()
    keep_picture(browser_page, "sign-in")
    browser_page.get_by_role("button", name="Sign in").click()
    expect(browser_page.get_by_role("banner").get_by_text("as Grace Example")).to_be_visible()
    assert browser_page.url == f"{serving.address}/"
    keep_picture(browser_page, "signed-in")
    browser_page.get_by_role("button", name="blue").click()
    expect(browser_page.get_by_text("All done.")).to_be_visible()
    browser_page.set_viewport_size({"width": 375, "height": 700})
    browser_page.locator("#person > summary").click()
    keep_picture(browser_page, "sign-out")
    browser_page.get_by_role("button", name="Sign out").click()
    expect(browser_page.get_by_text("This page needs the address")).to_be_visible()
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"answer": "blue"}
