"""`uwf init`: makes a store."""

from __future__ import annotations

import os
from pathlib import Path

import click

from uwf_cli.command import Command
from uwf_cli.invocation import Invocation
from uwf_cli.terminal import fields
from uwf_git.errors import NotFound


@click.command(
    cls=Command,
    examples=(
        "uwf init           the default store",
        "uwf init --here    the repository around the current folder",
    ),
)
@click.option("--here", is_flag=True, help="Keep threads in the repository around the current folder.")
@click.pass_obj
def init(invocation: Invocation, here: bool) -> None:
    """Make a store. Doing it again changes nothing.

    The default store is also made by the first command that writes; a project's repository becomes a
    store by this alone. Only refs/uwf/*, objects and <git dir>/uwf are ever touched there.
    """
    from uwf_git.store.location import ROOT_VARIABLES, enclosing_repository
    from uwf_git.store.location import init as make

    location = invocation.location
    if here:
        git_dir = enclosing_repository(Path.cwd())
        if git_dir is None:
            raise NotFound(f"{Path.cwd()} is in no git repository", "make one first: git init")
        location = location._replace(git_dir=git_dir, here=True)
        named = "--root" if invocation.root_option else next(filter(os.environ.get, ROOT_VARIABLES), None)
        if named:
            invocation.warn(f"{named} names a storage root, so other commands use its store instead")
    repository = make(location)
    invocation.emit({"store": str(repository.path)}, lambda value: fields([("store", value["store"])]))
