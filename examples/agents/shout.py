"""An agent in 15 lines: it says the task in capitals, and less of it when it is told that this was too much."""

import json

from uwf_git.kit import Context, Reply, create_agent


def run(ctx: Context) -> Reply:
    return say(ctx.history.start.prompt.upper())


def continue_(ctx: Context, session: str, message: str) -> Reply:
    return say(ctx.history.start.prompt.upper()[:12])


def say(text: str) -> Reply:
    return Reply(f"---\ntext: {json.dumps(text)}\n---\n\n{text}!\n", session="shouting")


if __name__ == "__main__":
    create_agent("shout", run, continue_).main()
