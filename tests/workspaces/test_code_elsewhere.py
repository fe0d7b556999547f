"""A thread's code on a second machine, which has a clone of the project and the threads' remote."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY, Machine

from uwf_git.base.errors import RemoteFailed
from uwf_git.format.ids import ThreadId, fork_id
from uwf_git.store.instance import Instance
from uwf_git.workspaces.sharing import push_code

WRITES = """uwf-exec sh -c 'echo "$UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""


class Site:
    """Two machines with a clone of one project each, and two bare repositories between them."""

    def __init__(self, uwf: Uwf, folder: Path) -> None:
        self.project, self.threads = folder / "project.git", folder / "threads.git"
        git("init", "-q", "-b", "main", folder / "begin")
        (folder / "begin/one.txt").write_text("one")
        git("-C", folder / "begin", "add", ".")
        git("-C", folder / "begin", "commit", "-q", "-m", "first")
        git("clone", "-q", "--bare", folder / "begin", self.project)
        git("init", "-q", "--bare", self.threads)
        self.here, self.there = Machine(uwf, folder / "here"), Machine(uwf, folder / "there")
        self.clones = {}
        for machine in (self.here, self.there):
            machine("init")
            machine("remote", "add", "origin", self.threads)
            self.clones[machine] = folder / f"clone of {machine.root.name}"
            git("clone", "-q", self.project, self.clones[machine])

    def starts(self) -> str:
        """A thread with a worktree on the first machine, after one step."""
        self.here.registers(RELAY)
        place = ("--workspace", "worktree", "--cwd", self.clones[self.here])
        thread = str(self.here("thread", "start", "relay", "-p", "Do it", *place).json["thread"])
        self.here("thread", "step", thread, "--agent", WRITES)
        return thread


@pytest.fixture
def site(uwf: Uwf, tmp_path: Path) -> Site:
    return Site(uwf, tmp_path)


def test_a_thread_goes_on_elsewhere_with_the_code_that_its_steps_left(site: Site) -> None:
    site.here("config", "set", "workspace.remote", "origin")
    thread = site.starts()
    site.here("push")
    clone = site.clones[site.there]
    done = site.there("continue", thread, "--agent", WRITES, cwd=clone)
    assert '"status":"completed"' in done.out
    assert git("-C", clone, "show", f"uwf/work/{thread}:made.txt").split() == ["writer", "reader"]
    assert (
        git("-C", clone, "status", "--short") == "" and git("-C", clone, "branch", "--show-current") == "main"
    )
    site.there("config", "set", "workspace.remote", "origin")
    site.there("push")
    assert git("-C", site.project, "show", f"uwf/work/{thread}:made.txt").split() == ["writer", "reader"]
    site.here("pull")
    assert site.here("verify").json["findings"] == []


def test_the_advised_setting_is_of_this_project_and_pushes_its_code(site: Site) -> None:
    thread, clone = site.starts(), site.clones[site.here]
    said = site.here("push").err
    advice = f"uwf config set 'workspace.projects.\"{clone}\".remote' origin"
    assert advice in said
    site.here(*shlex.split(advice)[1:])
    assert "stays here" not in site.here("push").err
    work = f"uwf/work/{thread}"
    assert git("-C", site.project, "rev-parse", work) == git("-C", clone, "rev-parse", work)


def test_a_remote_that_is_set_for_all_projects_has_no_effect_without_one_of_that_name(
    site: Site, tmp_path: Path
) -> None:
    clone = site.clones[site.here]
    git("-C", clone, "remote", "rename", "origin", "upstream")
    site.here("config", "set", "workspace.remote", "origin")
    thread = site.starts()
    assert [each["steps"] for each in site.here("thread", "list").json if each["thread"] == thread] == [1]
    own = f'workspace.projects."{clone}".remote'
    site.here("config", "set", own, "missing")
    place = ("--workspace", "worktree", "--cwd", clone)
    error = site.here("thread", "start", "relay", "-p", "Do it", *place, check=3).error
    assert "has no remote missing" in error["message"] and "remote add missing URL" in error["hint"]


def test_a_push_names_the_remote_of_the_settings_that_the_project_lacks(site: Site) -> None:
    site.starts()
    clone = site.clones[site.here]
    site.here("config", "set", f'workspace.projects."{clone}".remote', "missing")
    error, git_there = site.here("push", check=3).error, f"git -C {shlex.quote(str(clone))}"
    assert (
        "has no remote missing" in error["message"]
        and error["hint"] == f"see: {git_there} remote; or add it: {git_there} remote add missing URL"
    )


def test_code_that_is_not_here_is_named_and_no_agent_works_on_another(site: Site, tmp_path: Path) -> None:
    thread = site.starts()
    said = site.here("push").err
    clone = site.clones[site.here]
    assert "the code of 1 thread stays here" in said
    error = site.there("continue", thread, "--agent", WRITES, cwd=tmp_path, check=3).error
    commit = git("-C", clone, "rev-parse", f"uwf/work/{thread}")
    assert f"commit {commit[:12]} of the repository {site.project}" in error["message"]
    error = site.there("continue", thread, "--agent", WRITES, cwd=site.clones[site.there], check=3).error
    assert f"{commit[:12]}, is not in project" in error["message"]
    assert "not on its remote origin" in error["message"]
    push = error["hint"].removeprefix("on the machine that made it: ").removesuffix("; then repeat this")
    subprocess.run(push, shell=True, check=True, cwd=site.clones[site.here])
    site.there("continue", thread, "--agent", WRITES, cwd=site.clones[site.there])


def test_the_commands_that_bring_code_here_name_the_usual_remote_of_the_clone(site: Site) -> None:
    thread, clone = site.starts(), site.clones[site.there]
    site.here("push")
    git(
        "-C", clone, "remote", "set-url", "origin", f"{site.project}/"
    )  # the same repository, by another address
    error = site.there("continue", thread, "--agent", WRITES, cwd=clone, check=3).error
    first, _, second = error["hint"].removeprefix("on the machine that made it: ").partition("; then here: ")
    for command, folder in ((first, site.clones[site.here]), (second, site.here.root)):
        subprocess.run(command, shell=True, check=True, cwd=folder)
    site.there("thread", "step", thread, "--agent", WRITES, cwd=clone)


def test_the_commands_that_bring_code_here_say_how_to_list_several_remotes(site: Site) -> None:
    thread, clone = site.starts(), site.clones[site.there]
    site.here("push")
    git("-C", clone, "remote", "rename", "origin", "upstream")
    git("-C", clone, "remote", "set-url", "upstream", f"{site.project}/")
    git("-C", clone, "remote", "add", "fork", f"{site.project}/")
    hint = site.there("continue", thread, "--agent", WRITES, cwd=clone, check=3).error["hint"]
    fetch, _, listing = hint.partition("; then here: ")[2].removesuffix(" lists them)").partition(" (")
    assert " fetch REMOTE " in fetch
    done = subprocess.run(listing, shell=True, check=True, capture_output=True, text=True, cwd=site.here.root)
    assert done.stdout.split() == ["fork", "upstream"]


def test_code_is_found_in_the_clone_of_the_current_folder(site: Site, tmp_path: Path) -> None:
    thread = site.starts()
    site.here("push")
    git("-C", site.clones[site.here], "push", "-q", "origin", f"uwf/work/{thread}:main")
    site.there("pull")

    def shown(folder: Path) -> str:
        return str(site.there("thread", "show", thread, "--format", "text", cwd=folder).out)

    clone = site.clones[site.there]
    assert "is not on this machine" in shown(clone)
    git("-C", clone, "pull", "-q")
    assert "1 file changed" in shown(clone)
    assert "is not on this machine" in shown(tmp_path)


GATED = RELAY.replace(
    """  reader:
    description: Reads.
    systemPrompt: Read.
""",
    """  reader:
    description: Reads.
    human: true
""",
)


def test_where_code_is_is_not_claimed_and_the_hint_brings_it_here(site: Site, tmp_path: Path) -> None:
    for clone in site.clones.values():
        git("-C", clone, "remote", "set-url", "origin", "../project.git")
    site.here.registers(GATED)
    place = ("--workspace", "worktree", "--cwd", site.clones[site.here])
    thread = str(site.here("thread", "start", "relay", "-p", "Do it", *place).json["thread"])
    site.here("thread", "step", thread, "--agent", WRITES)
    site.here("push")
    site.there("pull")
    clone = site.clones[site.there]
    (note,) = site.there("verify", thread, cwd=clone).json["notes"]
    assert (
        "is not here" in note["message"] and "but in" not in note["message"] and "../" not in note["message"]
    )
    assert "../" not in site.there("thread", "show", thread, "--format", "text", cwd=clone).out
    answer = ("thread", "answer", thread, "-m", "read")
    error = site.there(*answer, cwd=clone, check=14).error
    assert "../" not in error["message"]
    first, _, rest = (
        error["hint"].removeprefix("on the machine that has it: ").partition("; then in a clone here: ")
    )
    second = rest.partition(",")[0]
    assert first in note["message"] and second in note["message"]
    for command, folder in ((first, site.clones[site.here]), (second, clone)):
        subprocess.run(command, shell=True, check=True, cwd=folder)
    assert site.there(*answer, cwd=clone).json["status"] == "completed"


def test_code_that_the_projects_remote_has_is_fetched_to_be_looked_at_before_an_answer(site: Site) -> None:
    site.here.registers(GATED)
    place = ("--workspace", "worktree", "--cwd", site.clones[site.here])
    thread = str(site.here("thread", "start", "relay", "-p", "Do it", *place).json["thread"])
    site.here("thread", "step", thread, "--agent", WRITES)
    git("-C", site.clones[site.here], "push", "-q", "origin", f"refs/uwf/work/{thread}")
    site.here("push")
    site.there("pull")
    clone = site.clones[site.there]
    (waits,) = site.there("inbox", cwd=clone).json
    assert "--unseen" not in waits["command"]
    answer = ("thread", "answer", thread, "-m", "read")
    error = site.there(*answer, cwd=clone, check=14).error
    assert "has come here only now" in error["message"]
    assert error["hint"] == f"look at it: uwf thread show {thread}; then answer"
    shown = site.there("thread", "show", thread, "--format", "text", cwd=clone).out
    assert "1 file changed" in shown and "is not on this machine" not in shown
    assert site.there(*answer, cwd=clone).json["status"] == "completed"


def test_a_step_goes_on_with_code_that_the_only_remote_has(site: Site) -> None:
    thread = site.starts()
    git("-C", site.clones[site.here], "push", "-q", "origin", f"refs/uwf/work/{thread}")
    site.here("push")
    clone = site.clones[site.there]
    git(
        "-C",
        clone,
        "remote",
        "set-url",
        "origin",
        f"{git('-C', clone, 'remote', 'get-url', 'origin').strip()}/.",
    )
    site.there("continue", thread, "--agent", WRITES, cwd=clone)
    assert site.there("thread", "steps", thread).json[-1]["role"] == "reader"


def test_the_command_that_is_printed_for_an_answer_works_without_the_code(site: Site, tmp_path: Path) -> None:
    site.here.registers(GATED)
    place = ("--workspace", "worktree", "--cwd", site.clones[site.here])
    thread = str(site.here("thread", "start", "relay", "-p", "Do it", *place).json["thread"])
    site.here("thread", "step", thread, "--agent", WRITES)
    assert "--unseen" not in site.here("inbox").json[0]["command"]
    site.here("push")
    waits = site.there("continue", thread, cwd=tmp_path, check=None).error
    assert waits["message"].startswith(f"thread {thread} waits for a person to play role 'reader'")
    commands = {
        site.there("inbox", cwd=tmp_path).json[0]["command"],
        site.there("thread", "show", thread, cwd=tmp_path).json["command"],
    }
    (command,) = commands
    assert command in waits["hint"]
    words = shlex.split(command.replace("TEXT", "read"))[1:]
    assert site.there(*words, cwd=tmp_path).json["status"] == "completed"


@pytest.mark.extended
def test_both_sides_of_a_divergence_keep_their_code(site: Site) -> None:
    for machine in (site.here, site.there):
        machine("config", "set", "workspace.remote", "origin")
    thread = site.starts()
    site.here("push")
    site.there("pull")
    other = WRITES.replace('"$UWF_ROLE"', "other")
    site.there("thread", "step", thread, "--agent", other, cwd=site.clones[site.there])
    site.here("thread", "step", thread, "--agent", WRITES)
    mine = site.here("thread", "show", thread).json["head"]
    site.there("push")
    site.here("pull")
    fork = fork_id(thread, mine)
    assert site.here("thread", "show", fork).json["head"] == mine
    clone = site.clones[site.here]

    def made(side: str) -> list[str]:
        last = site.here("thread", "steps", side, "--json").json[-1]["step"]
        code = site.here("thread", "step-details", last, "--json").json["detail"]["value"]["code"]
        git("-C", clone, "fetch", "-q", "origin", "+refs/uwf/work/*:refs/remotes/origin/uwf/*")
        assert git("-C", clone, "for-each-ref", "--contains", code["commit"])
        return git("-C", clone, "show", f"{code['commit']}:made.txt").split()

    assert (made(thread), made(fork)) == (["writer", "other"], ["writer", "reader"])


def test_each_step_of_a_shared_thread_is_pushed_with_its_code(site: Site) -> None:
    site.here("config", "set", "workspace.remote", "origin")
    thread = site.starts()
    site.here("push")
    site.here("thread", "step", thread, "--agent", WRITES, "--remote", "origin")
    assert git("-C", site.project, "show", f"uwf/work/{thread}:made.txt").split() == ["writer", "reader"]


def test_a_store_in_the_project_needs_no_other_place(uwf: Uwf, tmp_path: Path) -> None:
    """Threads and their code in one repository, which travels as one."""
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")
    (project / "relay.yaml").write_text(RELAY)
    env = {"UWF_STORAGE_ROOT": ""}
    uwf("init", "--here", cwd=project, env=env)
    begun = uwf(
        *("run", "relay.yaml", "-p", "x", "--workspace", "worktree", "--agent", WRITES), cwd=project, env=env
    )
    thread = begun.out.split('"thread":"')[1][:26]
    assert git("-C", project, "show", f"uwf/work/{thread}:made.txt").split() == ["writer", "reader"]
    report = uwf("verify", cwd=project, env=env).json
    assert (report["findings"], report["notes"]) == ([], [])
    checks = uwf("doctor", cwd=project, env=env, check=None).json
    assert [each["status"] for each in checks if each["check"] == "refs"] == ["ok"]
    assert git("-C", project, "branch", "-a", "--format=%(refname)") == "refs/heads/main"
    git("init", "-q", "--bare", shared := tmp_path / "shared.git")
    git("-C", project, "remote", "add", "origin", shared)
    uwf("remote", "add", "origin", cwd=project, env=env)
    uwf("config", "set", "workspace.remote", "origin", cwd=project, env=env)
    uwf("push", cwd=project, env=env)
    there = git("-C", shared, "for-each-ref", "--format=%(refname)").split()
    assert {f"refs/uwf/work/{thread}", f"refs/uwf/archive/{thread}"} <= set(there)
    assert not [name for name in there if "local" in name or name.startswith("refs/heads/uwf/work")]
    git("-C", project, "push", "-q", "origin", "main")
    git("clone", "-q", shared, clone := tmp_path / "clone")
    uwf("init", "--here", cwd=clone, env=env)
    uwf("remote", "add", "origin", cwd=clone, env=env)
    uwf("pull", cwd=clone, env=env)
    assert git("-C", clone, "for-each-ref", "refs/uwf/work", "refs/uwf/remotes/origin/work") == ""
    assert git("-C", clone, "branch", "-a", "--list", "*work*") == ""


def test_a_server_without_other_refs_than_branches_is_named_and_takes_the_code_as_a_branch(
    site: Site,
) -> None:
    git("-C", site.project, "config", "receive.hideRefs", "refs/uwf")
    site.here("config", "set", "workspace.remote", "origin")
    thread = site.starts()
    (warning,) = [line for line in site.here("push").err.splitlines() if "is not pushed" in line]
    assert f"origin refuses refs/uwf/work/{thread}: deny updating a hidden ref; ask its admin" in warning
    with pytest.raises(RemoteFailed) as refused:
        push_code(Instance.open(str(site.here.root)), [ThreadId(thread)], strict=True)
    command = refused.value.hint.partition("as a branch: ")[2]
    subprocess.run(command, shell=True, check=True)
    clone = site.clones[site.there]
    git("-C", clone, "fetch", "-q")
    site.there("continue", thread, "--agent", WRITES, cwd=clone)
    assert git("-C", clone, "show", f"uwf/work/{thread}:made.txt").split() == ["writer", "reader"]


def test_code_with_a_known_secret_is_not_pushed(site: Site) -> None:
    site.here("config", "set", "workspace.remote", "origin")
    (site.here.root / ".env").write_text("DEPLOY_TOKEN=tok-0123456789abcdef\n")
    site.here("config", "set", "secrets", "[DEPLOY_TOKEN]")
    thread = site.starts()
    leaks = WRITES.replace('"$UWF_ROLE"', "key = tok-0123456789abcdef")
    site.here("thread", "step", thread, "--agent", leaks)
    assert "tok-" in git("-C", site.clones[site.here], "show", f"uwf/work/{thread}:made.txt")
    error = site.here("push", "origin", thread, check=1).error
    assert f"the code of thread {thread} has a secret (DEPLOY_TOKEN)" in error["message"]
    other = site.starts()
    site.here("thread", "step", other, "--agent", WRITES)
    (warning,) = (line for line in site.here("push").json["warnings"] if "secret" in line)
    assert f"thread {thread} has a secret (DEPLOY_TOKEN) in made.txt, and is not pushed" in warning
    assert git("-C", site.project, "for-each-ref", "--format=%(refname)", "refs/uwf").split("/")[-1] == other


def test_a_branch_that_went_on_elsewhere_holds_back_no_other_push(site: Site) -> None:
    for machine in (site.here, site.there):
        machine("config", "set", "workspace.remote", "origin")
    thread = site.starts()
    site.here("push")
    site.there("continue", thread, "--agent", WRITES, cwd=site.clones[site.there])
    site.there("push")
    site.here("pull")
    other = site.starts()
    git("-C", site.clones[site.here], "fetch", "-q")
    done = site.here("push")
    assert git("-C", site.project, "rev-parse", f"uwf/work/{other}") and "not pushed" not in done.err
    # Both have made the same step: what is here is another thread then, which brings its code along.
    site.there("pull")
    for machine, said in ((site.there, "there"), (site.here, "here")):
        writes = WRITES.replace('"$UWF_ROLE"', said)
        machine("thread", "step", other, "--agent", writes, cwd=site.clones[machine])
    mine = site.here("thread", "show", other).json["head"]
    site.there("push")
    site.here("pull")
    done = site.here("push")
    fork = fork_id(other, mine)
    assert f"the code of thread {other} is not pushed" in done.err
    shown = git("-C", site.project, "show", f"uwf/work/{fork}:made.txt").split()
    assert shown == ["writer", "here"]
    assert git("-C", site.project, "show", f"uwf/work/{other}:made.txt").split() == ["writer", "there"]


def test_a_secret_in_a_merge_is_not_pushed(site: Site) -> None:
    site.here("config", "set", "workspace.remote", "origin")
    (site.here.root / ".env").write_text("DEPLOY_TOKEN=tok-0123456789abcdef\n")
    site.here("config", "set", "secrets", "[DEPLOY_TOKEN]")
    thread = site.starts()
    merges = (
        "git checkout -q -b side HEAD~; git commit -q --allow-empty -m side; git checkout -q -; "
        "git merge -q --no-commit --no-ff side; echo tok-0123456789abcdef > key; git add key; git commit -qm merge"
    )
    agent = f'uwf-exec sh -c \'({merges}) >&2; echo "{{\\"text\\": \\"done\\"}}"\''
    site.here("thread", "step", thread, "--agent", agent)
    assert "has a secret" in site.here("push", "origin", thread, check=1).error["message"]


@pytest.mark.parametrize("agent", [WRITES, 'uwf-exec sh -c \'echo {\\"text\\": \\"x\\"} | tee made.txt\''])
def test_a_thread_that_was_started_elsewhere_has_the_workspace_of_the_configuration(
    site: Site, agent: str
) -> None:
    site.here.registers(RELAY)
    place = ("--workspace", "worktree", "--cwd", site.clones[site.here])
    thread = str(site.here("thread", "start", "relay", "-p", "Do it", *place).json["thread"])
    site.here("push")
    clone = site.clones[site.there]
    site.there("config", "set", "workspace.kind", "worktree")
    site.there("pull")
    told = site.there("thread", "step", thread, "--agent", agent, cwd=clone).err
    assert "works in a git worktree that begins at main" in told
    assert git("-C", clone, "status", "--short") == ""
    assert "made.txt" in git("-C", clone, "show", "--stat", f"uwf/work/{thread}")
