"""Code is trusted by its SHA-256 on one machine: by who registers it there, and by nobody who only fetched it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from bundle_files import DEBATE
from cli_samples import on_terminal, write
from conftest import Uwf
from two_machines import Machine, Pair

from uwf_git.store.location import locate, Location
from uwf_git.bundles.trust import require_trusted
from uwf_git.errors import Untrusted
from uwf_git.store.opened import Instance


def refused(instance: Instance) -> str:
    """What keeps the workflow `debate` from being run in a store; "" where nothing does."""
    workflow = instance.registry.workflow(instance.registry.current("debate").hash)
    try:
        require_trusted(instance, workflow)
    except Untrusted as error:
        return f"{error.message} — {error.hint}"
    return ""
