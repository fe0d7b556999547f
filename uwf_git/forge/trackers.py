"""Trackers: issues that are not beside their code. A row says how a kind names its issues, and who talks to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

JIRA = "jira"

_KEY = r"(?P<project>[A-Za-z][A-Za-z0-9_]{0,99})-(?P<number>[1-9][0-9]{0,17})"
KEY = re.compile(_KEY)
"""An issue's key. Letters count the same in both cases, and are written large."""


class Tracker(NamedTuple):
    """A kind of tracker. `pages` are forms of an issue's page, with the groups `server`, `project` and `number`; `page`
    is the form that is kept, and `api` the address of the API, both from the server's. The `domain` and hosts below it
    are known without configuration. `token`, `server` and `user` are the variables with a login, with the host that it
    is for, and with the user, "" if the token is enough; `log_in` is the hint for a login that is missing. `client` is
    a `uwf_git.forge.issue_client.IssueClient`."""

    kind: str
    domain: str
    pages: tuple[re.Pattern[str], ...]
    page: str
    api: str
    token: str
    server: str
    user: str
    log_in: str
    client: str

    def has(self, host: str) -> bool:
        """Return whether a host without a port has this tracker by its name, as gitlab.example.org has GitLab."""
        return f".{host}".endswith(f".{self.domain}") or self.kind in host.split(".")[:-1]


def _page(form: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<server>(?i:https?)://[^/?#]+[^?#]*?){form}", re.DOTALL)


_ROWS = (
    Tracker(
        kind=JIRA,
        domain="atlassian.net",
        pages=(
            _page(rf"/(?:browse|(?:projects/[^/?#]+/)?issues)/{_KEY}/?(?:[?#].*)?"),
            _page(rf"/(?:jira/(?!secure/)|secure/)[^?#]*\?(?:[^#]*&)?selectedIssue={_KEY}(?:[&#].*)?"),
        ),
        page="browse/{key}",
        api="rest/api/2",
        token="JIRA_API_TOKEN",
        server="JIRA_SERVER",
        user="JIRA_USER",
        log_in="set JIRA_API_TOKEN, for the host in trackers or JIRA_SERVER, and on Jira Cloud JIRA_USER, your e-mail",
        client="uwf_git.forge.jira:JiraIssue",
    ),
)
TRACKERS: Mapping[str, Tracker] = {row.kind: row for row in _ROWS}
"""By their kinds, which `uwf_git.config.settings.TRACKERS` names."""
