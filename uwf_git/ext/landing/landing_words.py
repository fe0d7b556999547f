"""What `uwf land` has done, in words, by its JSON."""

from __future__ import annotations

from typing import Any

from uwf_git.plugin import counted


def landed_line(value: Any) -> str:
    """Return what `uwf land` has done, in a line, by its JSON."""
    if (pull := value["pull"]) is not None:
        return f"{pull['url']} {pull_done(pull)}"
    return f"{counted(value['commits'], 'commit')} landed on {value['onto']}, which is {value['commit'][:12]} now"


def pull_done(pull: Any) -> str:
    """Return what was done with a request, by its JSON."""
    return "was opened" if pull["new"] else "was brought up to date" if pull["changed"] else "was up to date"


def synced_line(value: Any) -> str:
    """Return what `uwf land --sync` has done, by its JSON."""
    if value["told"] is None:
        return f"{value['url']} is {value['state']}" + (", nothing new" if value["state"] == "open" else "")
    return f"{counted(len(value['items']), 'item')} of {value['url']} given to thread {value['told']}"


def on_target(value: Any) -> str:
    """Return how many commits are on which commit of the target."""
    where = f"{value['remote']}/{value['onto']}" if value["remote"] else value["onto"]
    return f"{counted(value['commits'], 'commit')} on {where} ({value['base'][:12]})"
