"""Which roles people play: those with `human: true`, and those that this machine's configuration gives to
`uwf-human`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from uwf_git.base.errors import UwfError
from uwf_git.format.casting import CastRole
from uwf_git.format.kinds import HUMAN, REHEARSE
from uwf_git.format.types import WITH_PEOPLE
from uwf_git.workflow.turn import TurnKind, turn_of

if TYPE_CHECKING:
    from uwf_git.config.settings import AgentConfig, Config
    from uwf_git.engine.kit.form import FormField
    from uwf_git.format.ids import Hash
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance


def agent_of_person(config: AgentConfig, is_override: bool = False) -> AgentConfig:
    """Return the agent of a role with `human: true`: `uwf-human`, with the arguments that it has in `config`, or
    `uwf-rehearse` if that is an override, for a rehearsal."""
    # By the bare names: any program may have such a file name.
    if config.command == HUMAN or (config.command == REHEARSE and is_override):
        return config
    return type(config)(HUMAN, HUMAN, (), None)


class HumanRoles:
    """Answers for many threads, reading each workflow and setting once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._declared: dict[Hash, frozenset[str]] = {}
        self._gates: dict[Hash, frozenset[str]] = {}
        self._fields: dict[Hash, tuple[FormField, ...]] = {}
        self._played: dict[tuple[object, ...], bool] = {}
        self._configs: dict[str | None, Config | None] = {}

    def among(self, row: CommitRow) -> bool:
        """Return whether a person may play a role of this commit's workflow."""
        return self._config(row) is not None or bool(self._of(row))

    def plays(self, row: CommitRow, role: str) -> bool:
        """Return whether a person plays the role here."""
        if role in self._of(row):
            return True
        if role.startswith("$") or (config := self._config(row)) is None:
            return False
        threads, player = self._instance.threads, None
        if row.start and row.workflow and threads.has_cast(row.workflow):
            player = threads.cast_role(row.start, role)
        player = player or CastRole(row.name or "", role)
        key = (row.project, *player.sections)
        if key not in self._played:
            self._played[key] = self._resolve(config, player)
        return self._played[key]

    def is_gate(self, row: CommitRow, role: str) -> bool:
        """Return whether a role is a gate."""
        return role in self._of(row) and row.workflow is not None and role in self._gates[row.workflow]

    def has_gates(self, row: CommitRow) -> bool:
        """Return whether a role of this commit's workflow is a gate."""
        return bool(self._of(row)) and row.workflow is not None and bool(self._gates[row.workflow])

    def fields(self, schema: Hash) -> tuple[FormField, ...]:
        """Return the form of a role's schema."""
        from uwf_git.engine.kit.form import fields_of

        if schema not in self._fields:
            self._fields[schema] = fields_of(self._instance.store.schema(schema).payload)
        return self._fields[schema]

    def _config(self, row: CommitRow) -> Config | None:
        """Return the configuration for a thread, None if it names no person."""
        if row.project not in self._configs:
            self._configs[row.project] = self._instance.config_with(b"human", row)
        return self._configs[row.project]

    def _resolve(self, config: Config, role: CastRole) -> bool:
        from uwf_git.config.resolve import resolve_agent

        try:
            agent = resolve_agent(config, role)
        except UwfError:
            return False
        return agent.command == HUMAN

    def _of(self, row: CommitRow) -> frozenset[str]:
        node = row.workflow
        if node is None:
            return frozenset()
        if node not in self._declared:
            self._declared[node] = self._gates[node] = frozenset()
            with suppress(UwfError):  # reported by the command that reads the workflow
                if self._instance.store.index.has_trait(node, WITH_PEOPLE):
                    workflow = self._instance.registry.workflow(node)
                    self._declared[node] = frozenset(filter(workflow.is_persons, workflow.roles))
                    gates = (name for name in workflow.roles if turn_of(workflow, name) is TurnKind.GATE)
                    self._gates[node] = frozenset(gates)
        return self._declared[node]
