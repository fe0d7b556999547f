"""Code workflows: the contract, the harness that runs them, trust."""

from uwf_git.plugin import Command, ConfigSection, Extension, Runner

RUNNER = Runner("uwf-bundle", "uwf_git.ext.code.agent:agent")

EXTENSION = Extension(
    "code",
    runners={"code": RUNNER},
    commands=(
        Command(
            "workflow trust",
            "uwf_git.ext.code.commands:trust",
            "Allow a code workflow to run on this machine.",
        ),
        Command(
            "workflow untrust",
            "uwf_git.ext.code.commands:untrust",
            "Revoke the trust in a code workflow.",
        ),
    ),
    config=(ConfigSection("bundles", "uwf_git.ext.code.grants:read_grants"),),
    compilers={
        "javascript": "uwf_git.ext.code.contract:Contract",
        "python": "uwf_git.ext.code.contract:Contract",
    },
)
