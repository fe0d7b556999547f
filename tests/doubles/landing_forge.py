"""The project of `landing_shop` with its remote on a forge."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from forge_server import TOKEN, Answer, Asked, ForgeServer, forge_server
from landing_shop import Shop

FORGES = ("github", "gitlab", "forgejo", "gitea")
TOKENS = {
    "github": "GH_ENTERPRISE_TOKEN",
    "gitlab": "GITLAB_TOKEN",
    "forgejo": "FORGEJO_TOKEN",
    "gitea": "GITEA_TOKEN",
}


class LandingForge(NamedTuple):
    shop: Shop
    server: ForgeServer

    @property
    def request(self) -> dict[str, object]:
        """The only one."""
        (change,) = self.server.changes.values()
        return change

    @property
    def number(self) -> int:
        (number,) = self.server.changes
        return number


@contextmanager
def at_forge(kind: str, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[LandingForge]:
    """Give a shop a remote on a forge of a kind, and a login there."""
    monkeypatch.chdir(shop.project)
    with forge_server(kind, repository=shop.remote) as server:
        server.token = TOKEN
        shop.with_remote(f"{server.web}.git")
        shop.configured(f"forges: {{ '{server.url.partition('://')[2]}': {kind} }}\n")
        monkeypatch.setenv(TOKENS[kind], TOKEN)
        yield LandingForge(shop, server)


@pytest.fixture(params=FORGES)
def forge(
    request: pytest.FixtureRequest, bare_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LandingForge]:
    """The project as the current folder, with its remote on a forge."""
    with at_forge(request.param, bare_shop, monkeypatch) as forge:
        yield forge


one_forge = pytest.mark.parametrize("forge", ["gitea"], indirect=True)


class Killer:
    """Kills a process as the forge has got a call of it, `before` or `after` it carries that out."""

    def __init__(self, server: ForgeServer, moment: str) -> None:
        self.server, self.moment = server, moment
        self.has_killed = False
        self._answer = server.answer

    def kills(self, process: subprocess.Popen[str], number: int) -> None:
        """Wait for a process, and kill it at its call of this number, if it comes to that."""
        calls, self.has_killed = 0, False

        def answer(asked: Asked) -> Answer:
            nonlocal calls
            calls += 1
            result = (0, None, {}) if calls == number and self.moment == "before" else self._answer(asked)
            if calls == number:
                self.has_killed = True
                process.kill()
            return result

        self.server.answer = answer  # type: ignore[method-assign]
        process.wait(60)
        self.server.answer = self._answer  # type: ignore[method-assign]
