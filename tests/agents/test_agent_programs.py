"""The real client programs that tests run are pinned, and can be installed."""

from __future__ import annotations

import json
import re

from agent_programs import PINS, PROGRAMS


def test_every_program_is_pinned_to_one_version() -> None:
    for file in PINS.rglob("*"):
        if file.suffix == ".json":
            versions = json.loads(file.read_text())["dependencies"].values()
            assert all(re.fullmatch(r"\d+\.\d+\.\d+(-beta\.\d+)?", version) for version in versions)
        elif file.is_file():
            assert re.fullmatch(r"([a-z-]+(\[[a-z]+\])?==[0-9.]+\n)+", file.read_text())


def test_a_group_is_of_pins_that_exist_and_its_programs_of_one_tier() -> None:
    for row in PROGRAMS.values():
        assert (PINS / f"{row.group}.txt").is_file() or (PINS / row.group / "package.json").is_file()
        assert {other.tier for other in PROGRAMS.values() if other.group == row.group} == {row.tier}
