"""`uwf fleet health`."""

from __future__ import annotations

from uwf_git.ext.fleet.commands.options import MONITOR
from uwf_git.ext.fleet.monitor import Address
from uwf_git.plugin import Invocation, UwfError, command, extensions

_PATIENCE = 5.0  # seconds for a process to say that it is alive


@command("uwf fleet health", "uwf fleet health --monitor 9470")
@MONITOR
def health(invocation: Invocation, monitor: Address | None) -> None:
    """Exit with 0 if a process of a fleet works on this store, and can: for containers.

    It checks the store, its disk and the Temporal server. With --monitor, also asks the process that serves
    there whether it is alive.
    """
    from uwf_git.ext.fleet.endpoint import find

    place = find(invocation.instance.store.repository.private)
    if place is None:
        raise UwfError("no process of a fleet works on this store", "uwf fleet worker begins one")
    if monitor is not None:
        _ask(monitor)
    problems = [item.problem for item in extensions.hindrances(invocation.instance)]
    if problems:
        raise UwfError("; ".join(problems), "uwf doctor checks the store")
    invocation.emit({"ready": True, "address": place.address}, lambda _: "ready")


def _ask(monitor: Address) -> None:
    import httpx

    host = f"[{monitor.host}]" if ":" in monitor.host else monitor.host
    try:
        answer = httpx.get(f"http://{host}:{monitor.port}/healthz", timeout=_PATIENCE, trust_env=False)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise UwfError(f"the process at {host}:{monitor.port} is not alive: {error}", "restart it") from None
