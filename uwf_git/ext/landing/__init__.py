"""Landing: what a thread's work leaves for the outside, and gets back from there."""

from uwf_git.plugin import AgentProgram, Command, ConfigSection, Extension, RefKind, ThreadAction

EFFECTS = RefKind(
    "refs/uwf/effects/",
    "thread",
    order=120,
    of_thread=True,
    records=("effect",),
    trailer="Uwf-Effect",
    settle="grow",
    rule="steps",
    word="effects",
    told="the effects of {}",
    check="uwf_git.ext.landing.effect_check:check_effect",
)

EXTENSION = Extension(
    "landing",
    commands=(
        Command(
            "land",
            "uwf_git.ext.landing.commands:land",
            "Land a thread's work on the branch that it is for.",
            "Share",
        ),
        Command(
            "claims",
            "uwf_git.ext.landing.claims_command:claims",
            "Hold the claims of a request against its thread.",
            "Share",
        ),
        Command(
            "effect",
            "uwf_git.ext.landing.tree:effect",
            "Send comments and other effects to the outside once.",
            "Share",
        ),
    ),
    agents=(AgentProgram("uwf-land", "command", "uwf_git.ext.landing.agent:agent"),),
    refs=(EFFECTS,),
    actions=(
        ThreadAction(
            "land",
            "Land",
            ("land",),
            "uwf_git.ext.landing.plans:landing_plan",
            "uwf_git.ext.landing.landing_words:landed_line",
            "uwf_git.ext.landing.train:ready_among",
            "ready to land",
        ),
        ThreadAction(
            "sync",
            "Sync with reviews",
            ("land", "--sync"),
            "uwf_git.ext.landing.plans:sync_plan",
            "uwf_git.ext.landing.landing_words:synced_line",
        ),
    ),
    pushed="uwf_git.ext.landing.pushed:pushed",
    merge_hint="uwf land {}",
    work_states="uwf_git.ext.landing.work_states:work_states",
    notes="landings",
    collected="uwf_git.ext.landing.last_tries:forget_removed",
    landed="uwf_git.ext.landing.pushed:landed",
    node_types=dict.fromkeys(
        ("9ZX7TD69ANCDQ", "BXMK3YSCEJ641", "80GWRGV0RW5XG"), "uwf_git.ext.landing.node_types:SCHEMAS"
    ),
    config=(
        ConfigSection(
            "land",
            "uwf_git.ext.landing.settings:read_settings",
            texts=("onto", "branch", "commits"),
            project={
                "checks": "runs: on what lands",
                "onto": "lands: is the branch that work is for",
                "branch": "lands: is the branch of a request",
                "commits": "lands: is what commits become",
                "timeout": "lands: may each check take",
            },
        ),
    ),
)
