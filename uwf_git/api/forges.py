"""The forge of a repository, with the user's login."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uwf_git.forge.address import ForgeRepository
    from uwf_git.forge.review_client import ReviewClient
    from uwf_git.store.instance import Instance


def client_for(instance: Instance, repository: ForgeRepository) -> ReviewClient:
    """Return a client with the user's login. Raises Invalid without one."""
    from uwf_git.forge.login import find_login
    from uwf_git.forge.review_client import ReviewClient

    environ = {**instance.secrets, **instance.environ}
    login = find_login(repository.forge, instance.config, environ, instance.redactor)
    return ReviewClient(repository, login.token, bearer=login.bearer)
