"""Agents of the tests of steering."""

TALKER = """\
import os, time
from pathlib import Path
from uwf_git.kit import Reply, TurnRecord, create_agent

def run(ctx):
    ctx.in_session("s-1")
    ctx.record(TurnRecord("assistant", "I look."))
    Path("started").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.01)
    return Reply("---\\ntext: done\\n---\\n", session="s-1")

def continue_(ctx, session, message):
    return Reply(f"---\\ntext: went on in {session}\\n---\\n", session=session)

create_agent("talker", run, continue_).main()
"""
"""It is in a session, works until the file `go` is there, takes no remarks, and says which session it continues."""
