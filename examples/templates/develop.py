"""The workflow of develop.yaml as code: the same roles, and a function in place of the graph."""

from uwf_git.workflow import define

PLANNER = """\
You plan a change to software. You don't change any file.

Read the task and the code it touches, then break the work into phases in the order in which each unblocks the
next. A phase is something that can be built and tested by itself: a typo is one phase, a feature in two or three
files one or two, a change across modules two or three. Fewer are better: what would only be tested together is
one phase.

Give each phase a short id, a title, and details that a coder can follow without asking back: what is changed,
where, which cases count, and how one sees that it is done.
"""

CODER = """\
You implement the next phase of the plan that isn't done yet, and no other. If a review or a test since your last
turn found something, mend that first.

Write the test with the change, keep to the style of the code around you, and run what the project has to check
itself. Report the id of the phase that you completed. If you have finished all that were left in one go, that is
the id of the last one.
"""

REVIEWER = """\
You review the change as it stands in the working tree, against the task and the plan. Read the diff itself.
Reject only for what must be mended: a case that is missed or broken, no test, code that will be hard to keep. Each
issue names file and line, what is wrong, and what would be right.
"""

TESTER = """\
You verify the change: run the project's tests, its build and its linters, all of them, and mend nothing. Tell
failures with the command that shows them and the lines of its output that matter.
"""

COMMITTER = """\
You commit the change on a branch of its own, with a message that says why. Mend nothing: if git refuses, tell what
it said.
"""

ROLES = {
    "planner": {
        "description": "Breaks the task into phases that are implemented one after the other.",
        "systemPrompt": PLANNER,
        "schema": {
            "type": "object",
            "properties": {
                "phases": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {
                                "type": "string",
                                "description": "Short and unique within the plan, such as p1.",
                            },
                            "title": {"type": "string"},
                            "details": {
                                "type": "string",
                                "description": "What is changed, where, and how one sees that it is done.",
                            },
                        },
                        "required": ["id", "title", "details"],
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["phases"],
            "additionalProperties": False,
        },
    },
    "coder": {
        "description": "Implements the next phase of the plan, or mends what the last review or test found.",
        "systemPrompt": CODER,
        "schema": {
            "type": "object",
            "properties": {
                "completedPhase": {
                    "type": "string",
                    "description": "The id of the phase as the plan has it.",
                },
                "filesChanged": {"type": "array", "items": {"type": "string"}},
                "summary": {"type": "string"},
            },
            "required": ["completedPhase", "filesChanged", "summary"],
            "additionalProperties": False,
        },
    },
    "reviewer": {
        "description": "Reads the whole change, and says whether it can stay as it is.",
        "systemPrompt": REVIEWER,
        "schema": {
            "type": "object",
            "properties": {
                "status": {"enum": ["approved", "rejected"]},
                "issues": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "What must be mended; empty if it is approved.",
                },
            },
            "required": ["status", "issues"],
            "additionalProperties": False,
        },
    },
    "tester": {
        "description": "Runs tests, build and linters.",
        "systemPrompt": TESTER,
        "schema": {
            "type": "object",
            "properties": {"status": {"enum": ["passed", "failed"]}, "report": {"type": "string"}},
            "required": ["status", "report"],
            "additionalProperties": False,
        },
    },
    "committer": {
        "description": "Commits the change on a branch.",
        "systemPrompt": COMMITTER,
        "schema": {
            "type": "object",
            "properties": {
                "status": {"enum": ["committed", "failed"]},
                "branch": {"type": "string"},
                "commitSha": {"type": "string"},
                "error": {"type": "string"},
            },
            "required": ["status"],
            "additionalProperties": False,
        },
    },
}


def phases_left(steps):
    """The coder has had fewer turns than there are phases, and hasn't done the last one."""
    phases = next(step["meta"]["phases"] for step in reversed(steps) if step["role"] == "planner")
    done = [step["meta"]["completedPhase"] for step in steps if step["role"] == "coder"]
    return len(done) < len(phases) and phases[-1]["id"] not in done


def next_role(ctx):
    match ctx.steps[-1]["role"] if ctx.steps else None:
        case None:
            return "planner"
        case "planner":
            return "coder"
        case "coder":
            return "coder" if phases_left(ctx.steps) else "reviewer"
        case "reviewer":
            return "coder" if ctx.last["status"] == "rejected" else "tester"
        case "tester":
            return "coder" if ctx.last["status"] == "failed" else "committer"


workflow = define(
    name="develop",
    description="Plans phases, implements them one by one, reviews, verifies and commits.",
    roles=ROLES,
    moderator=next_role,
    graph=[
        {"from": "__start__", "to": "planner"},
        {"from": "planner", "to": "coder"},
        {"from": "coder", "to": "coder", "condition": "phases left"},
        {"from": "coder", "to": "reviewer"},
        {"from": "reviewer", "to": "coder", "condition": "rejected"},
        {"from": "reviewer", "to": "tester"},
        {"from": "tester", "to": "coder", "condition": "failed"},
        {"from": "tester", "to": "committer"},
        {"from": "committer", "to": "__end__"},
    ],
)
