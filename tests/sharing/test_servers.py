"""Push, pull and clone over every way that git knows: a path, `git daemon`, HTTP with a password, ssh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import git_servers
import pytest
from conftest import Uwf
from git_servers import Server
from two_machines import RELAY, Machine

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module", params=git_servers.TRANSPORTS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One running server a transport, for all the tests here."""
    with git_servers.serve(request.param) as started:
        yield started


# For what has nothing to do with how the bytes get there.
by_path = pytest.mark.parametrize("server", ["path"], indirect=True)
# For what a server says of a push, which git passes on alike from all that aren't a path.
by_path_and_server = pytest.mark.parametrize("server", ["path", "http"], indirect=True)


@pytest.fixture
def remote(server: Server, hermetic: Path) -> Path:
    """An empty repository on the server. The user's git knows how to reach it."""
    with open(hermetic / ".gitconfig", "a") as config:
        config.write(server.config)
    return git_servers.bare(server.folder / f"{hermetic.parent.name}.git")


@pytest.fixture
def machine(uwf: Uwf, hermetic: Path) -> Callable[[str], Machine]:
    """A machine by its name, without a store at first."""
    return lambda name: Machine(uwf, hermetic / name)


@pytest.fixture
def ada(machine: Callable[[str], Machine], server: Server, remote: Path) -> Machine:
    """Ada's machine: a workflow, and the remote."""
    ada = machine("ada")
    ada.registers()
    ada("remote", "add", "origin", server.url(remote))
    return ada


def _begun(ada: Machine, other: Machine, url: str) -> tuple[str, Machine]:
    """A thread that Ada has begun and the other machine has cloned."""
    thread = ada.starts()
    ada("push")
    other("clone", url)
    return thread, other


def test_a_thread_goes_there_and_back(
    ada: Machine, machine: Callable[[str], Machine], server: Server, remote: Path
) -> None:
    thread = ada.starts("Over and back")
    pushed = ada("push").json
    assert {each["ref"]: each["object"] for each in pushed["pushed"]} == git_servers.refs(server.url(remote))
    assert pushed["refused"] == pushed["deleted"] == []
    bob = machine("bob")
    bob("clone", server.url(remote))
    head = bob.steps(thread, "by Bob")
    bob("push")
    adopted = ada("pull").json["adopted"]
    assert any(thread in str(each) for each in adopted)
    assert ada("thread", "show", thread).json["head"] == head
    assert ada.refs() == bob.refs() == git_servers.refs(remote)
    assert ada("pull").json["adopted"] == ada("push").json["pushed"] == []
    ada.is_sound()
    bob.verifies()


@by_path_and_server
def test_what_has_ended_arrives_as_such(
    ada: Machine, machine: Callable[[str], Machine], server: Server, remote: Path
) -> None:
    done, killed, active = (ada.starts(prompt) for prompt in ("Finish", "Kill", "Leave"))
    bob = machine("bob")
    ada("push")
    bob("clone", server.url(remote))
    for text in ("first", "second"):
        ada.steps(done, text)
    ada("thread", "kill", killed, "--reason", "no longer wanted")
    ada("push")
    bob("pull")
    carla = machine("carla")
    carla("clone", server.url(remote))
    for each in (bob, carla):
        assert each.statuses() == {done: "completed", killed: "killed", active: "idle"}
        assert [row["thread"] for row in each("thread", "list").json] == [active]
    bob.is_sound()
    carla.verifies()


@by_path
def test_one_thread_goes_alone(ada: Machine, remote: Path) -> None:
    wanted, other = ada.starts("This one"), ada.starts("Not this one")
    ada("push", "origin", wanted)
    listed = git_servers.refs(remote)
    assert f"refs/uwf/threads/{wanted}" in listed and not any(other in name for name in listed)


@by_path_and_server
def test_a_server_without_deletions_shows_the_archived_thread_as_archived(
    ada: Machine, machine: Callable[[str], Machine], server: Server, remote: Path
) -> None:
    git_servers.refuses_deletions(remote)
    thread = ada.starts()
    ada("push")
    ada("thread", "kill", thread)
    ada("push")
    assert {f"refs/uwf/threads/{thread}", f"refs/uwf/archive/{thread}"} <= set(git_servers.refs(remote))
    bob = machine("bob")
    bob("clone", server.url(remote))
    assert bob.status(thread) == "killed"
    assert bob("thread", "list").json == []
    assert bob("pull").json["adopted"] == []
    # Nor does the next push of anybody stumble over what can't be removed.
    for each in (ada, bob):
        assert [refused for refused in each("push").json["refused"] if not refused["deletion"]] == []


@by_path
def test_a_careful_server_takes_what_is_pushed(
    ada: Machine, machine: Callable[[str], Machine], server: Server, remote: Path
) -> None:
    git_servers.configured(remote, **git_servers.CAREFUL)
    git_servers.refuses_deletions(remote)
    thread = ada.starts()
    ada.steps(thread)
    ada("push")
    bob = machine("bob")
    bob("clone", server.url(remote))
    bob.steps(thread)
    bob("push")
    ada("pull")
    assert ada.status(thread) == bob.status(thread) == "completed"


@pytest.mark.parametrize("way", ["hidden", "hook"])
def test_a_server_that_takes_no_such_refs_is_named_with_what_to_ask_for(
    ada: Machine, remote: Path, way: str
) -> None:
    if way == "hidden":
        git_servers.configured(remote, **git_servers.HIDES_UWF)
    else:
        git_servers.refuses_uwf_by_hook(remote)
    before = ada.refs()
    ada.starts()
    result = ada("push", check=8)
    assert "administrator" in result.err and "refs/uwf" in result.err
    assert len(result.warnings) == 1
    assert ada.refs().items() >= before.items()
    assert git_servers.git("--git-dir", remote, "for-each-ref") == ""


def test_step_with_a_remote_fetches_before_and_pushes_after(
    ada: Machine, machine: Callable[[str], Machine], server: Server, remote: Path
) -> None:
    thread, bob = _begun(ada, machine("bob"), server.url(remote))
    bob("thread", "step", thread, "--remote", "origin")
    ada("thread", "step", thread, "--remote", "origin")
    assert len(ada("thread", "steps", thread).json) == 2
    assert git_servers.refs(remote) == ada.refs() | {
        # What Ada's push left behind of the active thread, if anything, is ignored.
        name: oid
        for name, oid in git_servers.refs(remote).items()
        if name == f"refs/uwf/threads/{thread}"
    }
    bob("pull")
    assert bob.status(thread) == ada.status(thread) == "completed"


@pytest.fixture
def project(hermetic: Path, server: Server, remote: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code with a remote of its own, on a branch and a tag; the current folder."""
    folder = hermetic / "project"
    git_servers.git(*git_servers.INIT, folder)
    (folder / "code.txt").write_text("code\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    git_servers.git("add", "code.txt")
    git_servers.git("commit", "-q", "-m", "Code")
    git_servers.git("tag", "-a", "v1", "-m", "One")
    git_servers.git("remote", "add", "origin", server.url(remote))
    git_servers.git("push", "-q", "origin", "main", "v1")
    # What was not pushed must not be pushed now, what was not fetched not fetched.
    git_servers.git("commit", "-q", "--allow-empty", "-m", "Not yet")
    git_servers.git("tag", "mine")
    git_servers.git("--git-dir", remote, "branch", "theirs", "main")
    git_servers.git("--git-dir", remote, "tag", "v2", "main")
    return folder


@by_path_and_server
def test_in_a_shared_repository_nothing_else_is_touched_on_either_side(
    uwf: Uwf, project: Path, server: Server, remote: Path, hermetic: Path, machine: Callable[[str], Machine]
) -> None:
    def of_the_code(repository: Path) -> str:
        listed = git_servers.git("--git-dir", repository, "for-each-ref").splitlines()
        head = (repository / "HEAD").read_text()
        return head + "\n".join(line for line in listed if "\trefs/uwf/" not in line)

    here, there = of_the_code(project / ".git"), of_the_code(remote)
    index = (project / ".git" / "index").read_bytes()
    uwf("init", "--here")
    uwf("remote", "add", "origin")
    (hermetic / "relay.yaml").write_text(RELAY)
    uwf("workflow", "put", hermetic / "relay.yaml")
    thread = uwf("thread", "start", "relay", "-p", "Beside the code").json["thread"]
    uwf("push")
    bob = machine("bob")
    bob("clone", server.url(remote))
    bob.steps(thread)
    bob("push")
    uwf("pull")
    assert len(uwf("thread", "steps", thread).json) == 1
    assert (of_the_code(project / ".git"), of_the_code(remote)) == (here, there)
    assert (project / ".git" / "index").read_bytes() == index
    assert not (project / ".git" / "FETCH_HEAD").exists()
    # A clone that is a store of threads takes no code along.
    listed = git_servers.git("--git-dir", bob.store, "for-each-ref", "--format=%(refname)").splitlines()
    assert [name for name in listed if not name.startswith("refs/uwf/")] == []


def test_a_password_comes_from_the_credential_helper_and_a_wrong_one_is_one_line(
    uwf: Uwf, hermetic: Path
) -> None:
    with git_servers.serve("http") as server:
        remote = git_servers.bare(server.folder / "guarded.git")
        gitconfig = hermetic / ".gitconfig"
        plain = gitconfig.read_text()
        ada = Machine(uwf, hermetic / "ada")
        ada.registers()
        ada("remote", "add", "origin", server.url(remote))

        refused = ada("push", check=8, timeout=30)
        assert len(refused.warnings) == 1 and "credential helper" in refused.err

        assert server.log is not None
        wrong = git_servers.credential_helper(server.folder.parent / "wrong", server.log, "wrong horse")
        gitconfig.write_text(f'{plain}[credential "{server.base}"]\n\thelper = {wrong}\n')
        refused = ada("push", check=8, timeout=30)
        assert len(refused.warnings) == 1 and "wrong horse" not in refused.err
        assert "erase" in server.log.read_text().split(), "git forgets a password that did not work"
        assert git_servers.refs(remote) == {}

        server.log.write_text("")
        gitconfig.write_text(plain + server.config)
        ada("push")
        assert {"get", "store"} <= set(server.log.read_text().split())
        assert git_servers.refs(remote) == ada.refs()


def test_a_host_that_only_the_ssh_configuration_knows_is_reached(uwf: Uwf, hermetic: Path) -> None:
    with git_servers.serve("ssh") as server:
        remote = git_servers.bare(server.folder / "guarded.git")
        ada = Machine(uwf, hermetic / "ada")
        ada.registers()
        ada("remote", "add", "origin", server.url(remote))
        assert server.url(remote).startswith("forge:"), "no name that anything but the configuration resolves"
        with open(hermetic / ".gitconfig", "a") as config:
            config.write(server.config)
        assert server.log is not None
        before = server.log.read_text().count("Accepted publickey")
        ada("push")
        assert server.log.read_text().count("Accepted publickey") > before
        assert git_servers.refs(remote) == ada.refs()

        (server.folder.parent / "user.pub").write_text("")
        refused = ada("pull", check=8, timeout=60)
        assert "Permission denied" in refused.err and len(refused.warnings) == 1
