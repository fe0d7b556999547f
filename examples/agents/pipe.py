"""Makes an agent of any program that reads a prompt on standard input and prints its answer:

agents: {mine: {command: python, args: [examples/agents/pipe.py, my-model, --quiet]}}
"""

import subprocess

from uwf_git.base.errors import AgentFailed
from uwf_git.kit import Context, Reply, create_agent


def run(ctx: Context) -> Reply:
    return ask(ctx, ctx.prompt)


def continue_(ctx: Context, session: str, message: str) -> Reply:
    """The program remembers nothing, so it is told all of it again, and then what was wrong."""
    return ask(ctx, f"{ctx.prompt}\n\n{message}")


def ask(ctx: Context, text: str) -> Reply:
    done = subprocess.run(ctx.options, input=text, capture_output=True, text=True, cwd=ctx.cwd, check=False)
    if done.returncode:
        raise AgentFailed(f"{ctx.options[0]} exited with {done.returncode}", done.stderr.strip()[-200:])
    return Reply(done.stdout, session="none")


if __name__ == "__main__":
    create_agent("pipe", run, continue_, parse_args=list).main()
