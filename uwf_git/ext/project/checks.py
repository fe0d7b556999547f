"""What `uwf doctor` says of the set-up of the project around the current folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.ext.project.review import missing, overridden
from uwf_git.plugin import OK, WARNING, Check, counted

if TYPE_CHECKING:
    from uwf_git.plugin import Instance

_NAME = "project"


def project_checks(instance: Instance) -> Iterator[Check]:
    """Check that the set-up is allowed, and that what it names is here, and tell which settings are the user's own."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # the working folder is gone, so there is no project
        return
    state = instance.setups.state_at(folder)
    if state.problem:
        yield Check(_NAME, WARNING, state.problem, "uwf allow")
    if state.allowed is None:
        return
    settings, config = state.allowed.settings(), instance.config_at(folder)
    yours = overridden(settings, config)
    count = counted(len(settings.document.scalars) - len(yours), "setting")
    more = f"; yours count for {', '.join(yours)}" if yours else ""
    yield Check(_NAME, OK, f"{count} of .uwf/config.yaml that you have allowed{more}")
    for line in missing(settings, config, os.environ):
        yield Check(_NAME, WARNING, f".uwf/config.yaml names {line}", "uwf agent list")
