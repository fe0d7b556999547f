"""Tasks of Harbor are cases, and their own tests judge them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from commands import UWF
from conftest import EXAMPLES, Uwf
from programs import program

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.ext.evaluation.harbor import tasks_in, verify

TASKS = EXAMPLES / "evaluation" / "harbor"
FIXED = 'python3 -c \'open("export.py", "w").write("""{}""")\''
ONE_ROLE = """\
name: solve
description: One role.
roles:
  solver:
    description: Solves it.
    systemPrompt: Solve it.
    outputSchema: { type: object, properties: { summary: { type: string } }, required: [summary] }
graph:
  $START: [{ role: solver }]
  solver: [{ role: $END }]
"""
SOLVED = """\
def row(cells):
    return ",".join(f'"{cell}"' if "," in cell else cell for cell in cells)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TASKS, tmp_path / "tasks"))


def dockerfile(tasks: Path, text: str) -> Any:
    (tasks / "csv-commas" / "environment" / "Dockerfile").write_text(text)
    (task,) = tasks_in(tasks)
    return task


def imported(uwf: Uwf, tasks: Path) -> Any:
    uwf("workflow", "put", EXAMPLES / "solve-issue.yaml")
    return uwf("eval", "import", tasks, "--to", "harbor", "--workflow", "solve-issue")


def test_a_task_is_a_case_with_its_instruction_its_files_and_its_limit(uwf: Uwf, tasks: Path) -> None:
    done = imported(uwf, tasks)
    assert [case["case"] for case in done.json["added"]] == ["csv-commas"]
    assert "csv-commas: not done, as it needs a container: RUN apt-get update" in done.err
    case = uwf("eval", "show", "harbor").json["cases"][0]
    assert case["case"] == "csv-commas" and case["tags"] == ["easy", "python"]
    assert case["limits"] == {"maxWallTime": 600}
    instruction = (tasks / "csv-commas" / "instruction.md").read_text()
    assert case["prompt"] == f"{instruction}\n/app is the folder that you work in.\n"


@pytest.mark.parametrize(("solved", "score"), [(True, 1.0), (False, 0.0)])
def test_the_tests_of_a_task_judge_a_trial(
    uwf: Uwf, tasks: Path, tmp_path: Path, solved: bool, score: float
) -> None:
    program("bwrap")
    (tmp_path / "solved.py").write_text(SOLVED)
    does = f"cp {tmp_path}/solved.py export.py" if solved else "true"
    workflow = tmp_path / "solve.yaml"
    workflow.write_text(ONE_ROLE)
    uwf("workflow", "put", workflow)
    uwf("eval", "import", tasks, "--to", "harbor", "--workflow", "solve")
    uwf("config", "set", "judges.harbor.command", " ".join([*UWF, "eval", "verify", str(tasks)]))
    agent = f'uwf-exec sh -c \'{does}; echo "{{\\"summary\\": \\"done\\"}}"\''
    done = uwf("eval", "run", "harbor", "--agent", agent, check=None)
    (trial,) = done.json["results"]
    assert trial["score"] == score, done.out
    assert trial["scores"][0]["reason"].startswith("quoted" if solved else "not as it should be")


def test_copies_into_the_working_folder_are_its_files(tasks: Path) -> None:
    environment = tasks / "csv-commas" / "environment"
    (environment / "data").mkdir()
    (environment / "data" / "a.csv").write_text("a\n")
    task = dockerfile(
        tasks,
        "FROM x\nWORKDIR /srv\nWORKDIR shop\nCOPY data/ data/\nCOPY export.py /srv/shop/src/e.py\nCOPY *.py ./\n",
    )
    (tasks / "csv-commas" / "task.toml").write_text("")
    (task,) = tasks_in(tasks)
    assert task.workdir == PurePosixPath("/srv/shop")
    assert sorted(map(str, task.files.values())) == ["data/a.csv", "export.py"]
    assert task.undone == ()


def test_what_another_stage_copies_is_no_file_of_the_task(tasks: Path) -> None:
    task = dockerfile(tasks, "FROM x AS build\nWORKDIR /app\nCOPY export.py .\nFROM y\nWORKDIR /app\n")
    assert not task.files


def test_tests_that_run_out_of_time_give_no_score(tasks: Path, tmp_path: Path) -> None:
    program("bwrap")
    folder = tasks / "csv-commas"
    (folder / "task.toml").write_text("[verifier]\ntimeout_sec = 0.5\n")
    (folder / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt; sleep 30\n")
    (task,) = tasks_in(tasks)
    with pytest.raises(Invalid, match=r"ran out of time after 0\.5 s"):
        verify(tasks, task.prompt, tmp_path, None)


@pytest.mark.parametrize(
    ("line", "undone"),
    [
        ("RUN pip install \\\n  pandas", "RUN pip install pandas"),
        ("COPY --from=build /x /app/x", "COPY --from=build /x /app/x"),
        ("COPY missing.txt .", "COPY missing.txt ."),
        ("COPY ../../../secret /app/", "COPY ../../../secret /app/"),
        ("ADD https://example.com/x /app/x", "ADD https://example.com/x /app/x"),
        ("COPY export.py /etc/", "export.py in /etc/export.py"),
    ],
)
def test_what_needs_a_container_is_named(tasks: Path, tmp_path: Path, line: str, undone: str) -> None:
    (tmp_path / "secret").write_text("x")
    task = dockerfile(tasks, f"FROM x\nWORKDIR /app\n{line}\n")
    assert [" ".join(text.split()) for text in task.undone] == [undone]
    assert not task.files


def test_a_container_gets_the_files_the_tests_and_the_logs_at_their_places(
    uwf: Uwf, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = tmp_path / "called"
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$@" >> {called}\ncase $1 in build) echo sha256:abc;; run)\n'
        'for word; do case $word in *:/logs) echo \'{"reward": 0.25, "speed": 9}\''
        " > ${word%:/logs}/verifier/reward.json;; esac; done; echo slow;; esac\n"
    )
    docker.chmod(0o755)
    trial = json.dumps({"start": {"prompt": tasks_in(tasks)[0].prompt}})
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    assert uwf("eval", "verify", tasks, "--container", docker, input=trial).json == {
        "score": 0.25,
        "reason": "slow",
    }
    build, run = called.read_text().splitlines()
    task = tasks / "csv-commas"
    assert build == f"build -q {task}/environment"
    assert f"-v {work}:/app -v {task}/tests:/tests -v " in run and run.endswith(
        "-w /app sha256:abc bash /tests/test.sh"
    )


def test_other_folders_and_tasks_of_several_steps_are_refused(uwf: Uwf, tasks: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no task of Harbor"):
        tasks_in(tmp_path)
    (tasks / "csv-commas" / "task.toml").write_text('[[steps]]\nname = "one"\n')
    with pytest.raises(Invalid, match="several steps"):
        tasks_in(tasks)
    assert uwf("eval", "verify", TASKS, input="{}", check=2).error["code"] == "usage"
    other = json.dumps({"start": {"prompt": "Another."}})
    assert "has this prompt" in uwf("eval", "verify", TASKS, input=other, check=3).error["message"]
