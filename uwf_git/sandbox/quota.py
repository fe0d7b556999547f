"""Quotas: limits on a command with its descendants, and the error for exceeding one."""

from typing import NamedTuple

from uwf_git.base.errors import AgentFailed

_MB, _GB = 10**6, 10**9


class Quota(NamedTuple):
    """Bytes of memory, number of processes and threads, CPU seconds, and bytes on disk. None is unset,
    infinity is unlimited."""

    memory: float | None = None
    processes: float | None = None
    cpu: float | None = None
    disk: float | None = None

    def tightened(self, other: "Quota") -> "Quota":
        return Quota(
            *(min((n for n in pair if n is not None), default=None) for pair in zip(self, other, strict=True))
        )

    def given(self, default: "Quota | None" = None) -> "Quota":
        """Return the limits with unset ones from `default`."""
        both = zip(self, default or Quota(), strict=True)
        chosen = (usual if mine is None else mine for mine, usual in both)
        return Quota(*(None if value in (None, float("inf")) else value for value in chosen))


class Exceeded(NamedTuple):
    """The limit that ended a command. `used` is None if the kernel refused more."""

    limit: str
    allowed: float
    used: float | None = None

    def told(self, where: str) -> str:
        """Return a message; `where` is the configuration's section, as in `tools.limits`."""
        what, allowed = _WHAT[self.limit], _shown(self.limit, self.allowed)
        if self.used is None:
            did = f"needed more {what}"
        elif self.limit == "processes":
            did = f"had {self.used:.0f} {what}"
        else:
            did = f"used {_shown(self.limit, self.used)} of {what}"
        return f"it {did}, the limit is {allowed} ({where}.{self.limit})"

    def failure(self, name: str, alias: str) -> AgentFailed:
        """Return the error of an agent's program."""
        where = f"agents.{alias}.limits"
        return AgentFailed(
            f"{name} was ended: {self.told(where)}", "raise the limit in config.yaml, if it is too low"
        )


_WHAT = {"memory": "memory", "processes": "processes and threads", "cpu": "processor time", "disk": "disk"}


def _shown(limit: str, value: float) -> str:
    if limit == "processes":
        return f"{value:.0f}"
    if limit == "cpu":
        return f"{value:.3g} s"
    return f"{value / _GB:.3g} GB" if value >= _GB else f"{value / _MB:.3g} MB"
