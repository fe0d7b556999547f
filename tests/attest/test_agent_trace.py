"""Which lines are a model's: `git blame` names a commit, and the commit's Agent Trace record has the line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

from commands import git
from conftest import Uwf
from evidence import Evidence, coded_thread

AGENT = """\
import subprocess
from uwf_git.kit import Context, Reply, create_agent

def run(ctx: Context) -> Reply:
    subprocess.run(["sh", "-c", SCRIPT], cwd=ctx.cwd, check=True)
    return Reply('---\\ntext: "done"\\n---\\n', "s", model="acme-1")

create_agent("uwf-odd", run).main()
"""


def traced(uwf: Uwf, thread: str) -> list[dict[str, Any]]:
    return list(uwf("attest", thread, "--agent-trace").lines)


def worked(uwf: Uwf, folder: Path, script: str) -> str:
    """A thread in whose worktree an agent ran a script."""
    return coded_thread(uwf, folder, f"SCRIPT = {script!r}\n{AGENT}")


def blamed(project: Path, revision: str, path: str) -> list[str]:
    """The commit of each line of a file."""
    said = git("-C", project, "blame", "--porcelain", revision, "--", path)
    return re.findall(r"^([0-9a-f]{40}) \d+ \d+", said, re.M)


def authors(records: list[dict[str, Any]], path: str, commits: list[str]) -> list[str]:
    """The model of each line by its commit, "" if no record has it."""
    models = []
    for number, commit in enumerate(commits, 1):
        found = ""
        for record in (each for each in records if each["vcs"]["revision"] == commit):
            for file in (each for each in record["files"] if each["path"] == path):
                for said in file["conversations"]:
                    if any(part["start_line"] <= number <= part["end_line"] for part in said["ranges"]):
                        found = said["contributor"].get("model_id", said["contributor"]["type"])
        models.append(found)
    return models


def test_blame_and_the_records_tell_which_lines_a_model_wrote(uwf: Uwf, evidence: Evidence) -> None:
    records = traced(uwf, evidence.thread)
    branch = f"uwf/work/{evidence.thread}"
    shop = blamed(evidence.project, branch, "shop.py")
    assert authors(records, "shop.py", shop) == ["acme-1", "", "acme-1", "acme-1"]
    assert authors(records, "new.py", blamed(evidence.project, branch, "new.py")) == ["acme-1"] * 3


def test_a_record_has_what_the_specification_requires(uwf: Uwf, evidence: Evidence) -> None:
    (record,) = traced(uwf, evidence.thread)
    step = uwf("thread", "steps", evidence.thread).json[0]
    assert (record["version"], record["vcs"]) == ("0.1.0", {"type": "git", "revision": step["code"]})
    assert UUID(record["id"]).version == 5 and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}Z", record["timestamp"])
    assert record["tool"]["name"] == "uwf" and record["tool"]["version"]
    assert {file["path"] for file in record["files"]} == {"new.py", "shop.py"}
    for file in record["files"]:
        (said,) = file["conversations"]
        assert said["contributor"] == {"type": "ai", "model_id": "acme-1"}
        assert said["ranges"] and all(set(part) == {"start_line", "end_line"} for part in said["ranges"])
    told = record["metadata"]["uwf"]
    assert (told["thread"], told["node"], told["session"]) == (evidence.thread, step["step"], "session-1")
    assert traced(uwf, evidence.thread) == [record]


def test_each_commit_of_an_agent_has_its_record_and_odd_names_are_as_they_are(
    uwf: Uwf, tmp_path: Path
) -> None:
    name = 'od"d\\\\ n\\tame.py'
    script = f"""
        printf 'a\\nb\\n' > one.py; git add -A; git commit -qm one
        printf '@@ -1 +1,9 @@\\n+++ b/shop.py\\n' > '{name}'; printf 'a\\nB\\nc\\n' > one.py; rm shop.py
        printf '\\000\\001' > picture.png
    """
    thread = worked(uwf, tmp_path, script)
    records = traced(uwf, thread)
    paths = [[each["path"] for each in record["files"]] for record in records]
    assert paths == [["one.py"], [name, "one.py"]]
    commits = blamed(tmp_path / "project", f"uwf/work/{thread}", "one.py")
    assert len(set(commits)) == 2 and authors(records, "one.py", commits) == ["acme-1"] * 3


def test_what_an_agent_only_fetched_or_merged_is_not_a_models(uwf: Uwf, tmp_path: Path) -> None:
    script = """
        git checkout -q -b theirs HEAD
        echo old > old.py; git add -A
        GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' git commit -qm old
        git checkout -q -b side HEAD~; echo side > side.py; git add -A; git commit -qm side
        git checkout -q theirs; git merge -q --no-edit side
        echo new > new.py
    """
    records = traced(uwf, worked(uwf, tmp_path, script))
    found = {
        file["path"]: file["conversations"][0]["contributor"]
        for record in records
        for file in record["files"]
    }
    assert found == {"old.py": {"type": "unknown"}, "new.py": {"type": "ai", "model_id": "acme-1"}}


def test_a_command_without_a_model_is_of_unknown_origin(uwf: Uwf, tmp_path: Path) -> None:
    agent = 'uwf-exec sh -c \'echo x > new.py; echo "{\\"text\\": \\"done\\"}"\''
    (record,) = traced(uwf, coded_thread(uwf, tmp_path, agent))
    assert record["files"][0]["conversations"][0]["contributor"] == {"type": "unknown"}


def test_code_that_is_not_here_is_named_and_left_out(uwf: Uwf, evidence: Evidence) -> None:
    evidence.project.rename(evidence.folder / "elsewhere")
    done = uwf("attest", evidence.thread, "--agent-trace")
    assert done.out == "" and "not on this machine, and left out: the code of " in done.err


def test_a_conversation_has_the_page_of_a_thread_on_a_forge(uwf: Uwf, evidence: Evidence) -> None:
    uwf("remote", "add", "origin", "https://ada:s3cret@codeberg.org/ada/work.git")
    (record,) = traced(uwf, evidence.thread)
    url = record["files"][0]["conversations"][0]["url"]
    assert url == f"https://codeberg.org/ada/work/src/branch/uwf/threads/{evidence.thread}"
    assert "s3cret" not in json.dumps(record)
