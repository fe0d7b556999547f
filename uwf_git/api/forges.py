"""The forge of a repository, or the server of an issue, with the user's login."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid

if TYPE_CHECKING:
    from uwf_git.forge.address import Forge, ForgeRepository, IssueAddress
    from uwf_git.forge.issue_client import IssueClient
    from uwf_git.forge.login import Login
    from uwf_git.forge.review_client import ReviewClient
    from uwf_git.store.instance import Instance


def client_for(instance: Instance, repository: ForgeRepository) -> ReviewClient:
    """Return a client with the user's login. Raises Invalid without one."""
    from uwf_git.forge.review_client import ReviewClient

    login = _login(instance, repository.forge)
    return ReviewClient(repository, login.token, bearer=login.bearer)


def client_of_issue(instance: Instance, address: IssueAddress, *, writes: bool = True) -> IssueClient:
    """Return a client of an issue, with the user's login; if it only reads, a login is not needed for what everybody
    may see. Raises Invalid without one that is needed."""
    from uwf_git.forge.issue_client import issue_client
    from uwf_git.forge.login import Login

    login, log_in = Login("", ""), ""
    try:
        login = _login(instance, address.repository.forge)
    except Invalid as error:
        if writes:
            raise
        log_in = error.hint
    return issue_client(address, login, log_in)


def _login(instance: Instance, forge: Forge) -> Login:
    from uwf_git.forge.login import find_login

    secrets = instance.secrets
    return find_login(forge, instance.config, secrets.environment(), instance.redactor, secrets.value)
