"""A secret in a keyring is read by the command of the package keyring, from a file in place of a desktop's."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from uwf_git.base.errors import Unavailable
from uwf_git.store.instance import Instance

KEY = "Tr0ub4dor-and-3-horses"


def test_a_secret_in_a_keyring_is_read_by_its_service_and_user(
    instance: Instance, config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyrings.alt.file.PlaintextKeyring")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    subprocess.run(["keyring", "set", "uwf/test", "ada"], input=f"{KEY}\n", text=True, check=True)
    config("secrets: {OPENAI_API_KEY: {keyring: uwf/test/ada}, OTHER_KEY: {keyring: uwf/test/bob}}\n")
    assert instance.secrets["OPENAI_API_KEY"] == KEY
    assert instance.redactor.text(f"it is {KEY}") == ("it is [redacted:OPENAI_API_KEY]", 1)
    with pytest.raises(Unavailable, match="keyring exited with 1"):
        instance.secrets["OTHER_KEY"]
