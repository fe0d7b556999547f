"""What is told of a git that failed: the line that has its cause, and a way out that fits it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git
from conftest import Uwf

from uwf_git.git.program import CallResult, failure, hint_for

AWAY = "repeat when the remote can be reached"


@pytest.mark.parametrize(
    ("args", "err", "cause", "hint"),
    [
        (
            ("worktree", "add"),
            "Preparing worktree\nerror: unable to create file a: No space left on device\n"
            "fatal: Could not reset index file to revision 'HEAD'.\n",
            "unable to create file a: No space left on device",
            "make room",
        ),
        (
            ("fetch",),
            "fatal: Could not read from remote repository.\n"
            "error: file write error: No space left on device\nfatal: index-pack failed\n",
            "file write error: No space left on device",
            "make room",
        ),
        (
            ("fetch",),
            "fatal: unable to access 'https://x/': Could not resolve host: x\n",
            "unable to access 'https://x/': Could not resolve host: x",
            AWAY,
        ),
        (
            ("gc",),
            "error: insufficient permission for adding an object\n"
            "error: cannot open objects/ab: Permission denied\nfatal: failed to run repack\n",
            "cannot open objects/ab: Permission denied",
            "let this user write there",
        ),
        (
            ("update-ref",),
            "fatal: cannot lock ref 'refs/heads/uwf/threads/1': 'refs/heads/uwf' exists; cannot create it\n",
            "cannot lock ref 'refs/heads/uwf/threads/1': 'refs/heads/uwf' exists; cannot create it",
            "rename the branch that is in the way",
        ),
        (("add",), "fatal: something else\n", "something else", "see whether git works there"),
    ],
)
def test_the_cause_is_told_and_the_hint_is_its_own(
    args: tuple[str, ...], err: str, cause: str, hint: str
) -> None:
    error = failure(args, CallResult(128, b"", err))
    assert error.message == f"git {args[0]} failed: {cause}"
    assert (error.hint or "").startswith(hint) and hint_for(err, args[0]) == error.hint


def test_the_first_of_several_errors_is_told() -> None:
    assert CallResult(1, b"", "note\nfatal: one\nerror: two\n").reason == "one"


def test_a_failure_without_a_word_has_a_reason() -> None:
    assert CallResult(3, b"", "").reason == "it exited with 3"
    assert CallResult(-25, b"", "").reason == "it was ended by SIGXFSZ"


def test_a_hook_of_the_user_that_refuses_a_push_is_named(uwf: Uwf, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    hook = hooks / "pre-push"
    hook.write_text("#!/bin/sh\necho 'scanner: policy 7' >&2\nexit 1\n")
    hook.chmod(0o755)
    uwf("guide", "example", "--format", "text")
    git("init", "-q", "--bare", tmp_path / "hub.git")
    uwf("init")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    (tmp_path / "example.yaml").write_text(uwf("guide", "example", "--format", "text").out)
    uwf("workflow", "put", tmp_path / "example.yaml")
    git("config", "--global", "core.hooksPath", hooks)
    error = uwf("push", "hub", "--all-projects", check=None).error
    assert "its pre-push hook refused: scanner: policy 7" in error["message"]
    assert AWAY not in error["hint"] and "hook" in error["hint"]
