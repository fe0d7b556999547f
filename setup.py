"""The commands that are installed: `uwf`, and one for each agent of the registry. pyproject.toml has the rest."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))
from uwf_git.base.extensions import agent_programs

agents = [f"{program.name} = {program.module}:main" for program in agent_programs()]
setup(entry_points={"console_scripts": ["uwf = uwf_cli.main:main", *agents]})
