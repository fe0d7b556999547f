"""Crews: packages of personas, menus and workflows."""

from uwf_git.plugin import Command, Extension, Pages, RefKind

REFS = RefKind(
    "refs/uwf/crews/",
    "name",
    order=20,
    records=("crew",),
    trailer="Uwf-Crew",
    record_parents=1,
    name_field="name",
    settle="version",
    rule="crews",
    word="crew",
    owner="the crew is called",
    foreign=("package/",),
    check="uwf_git.ext.crews.check:check",
    versions="uwf_git.ext.crews.registry:Crews",
    branches="refs/heads/uwf/crews/",
    commands="uwf crew",
    made_of="package",
    put="uwf crew import PACKAGE",
    propose="uwf crew propose PACKAGE",
)

EXTENSION = Extension(
    "crews",
    step_parts={"crew": "uwf_git.ext.crews.step_parts:PARTS"},
    commands=(
        Command(
            "crew",
            "uwf_git.ext.crews.commands.tree:crew",
            "Personas with menus, and their workflows.",
            "Workflows and crews",
        ),
        Command(
            "chat",
            "uwf_git.ext.crews.commands.session:chat",
            "Chat with a model or a persona.",
            "Run",
        ),
        Command(
            "publish crew",
            "uwf_git.ext.crews.commands.commands:publish",
            "Push a crew to a branch for review.",
        ),
    ),
    collected="uwf_git.ext.crews.mounts:collect",
    checks="uwf_git.ext.crews.doctor:checks",
    refs=(REFS,),
    pages=Pages(
        "Crews",
        "refs/uwf/crews/",
        {"/crews": "uwf_git.ext.crews.pages:crews", "/crew/{name}": "uwf_git.ext.crews.pages:crew"},
    ),
)
