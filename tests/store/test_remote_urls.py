"""What is shown and recorded of a remote's address."""

from __future__ import annotations

import pytest
from conftest import Uwf

from uwf_git.store.remotes import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:secret@git.example.invalid/a.git", "https://git.example.invalid/a.git"),
        ("https://token@git.example.invalid/a@b.git", "https://git.example.invalid/a@b.git"),
        ("https://a@b:secret@git.example.invalid/a.git", "https://git.example.invalid/a.git"),
        ("ssh://git:secret@git.example.invalid:22/a.git", "ssh://git@git.example.invalid:22/a.git"),
        ("SSH://git@git.example.invalid/a.git", "SSH://git@git.example.invalid/a.git"),
        ("git+ssh://git:secret@git.example.invalid/a.git", "git+ssh://git@git.example.invalid/a.git"),
        ("git@git.example.invalid:team/a.git", "git@git.example.invalid:team/a.git"),
        ("https://git.example.invalid/a.git", "https://git.example.invalid/a.git"),
        ("/srv/a@b.git", "/srv/a@b.git"),
    ],
)
def test_no_password_is_left_and_the_user_only_where_ssh_needs_it(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_list_of_remotes_shows_no_password_of_ssh(uwf: Uwf) -> None:
    uwf("init")
    uwf("remote", "add", "hub", "ssh://git:hunter2hunter2@git.example.invalid/a.git", check=None)
    assert "hunter2" not in uwf("remote", "list").out
