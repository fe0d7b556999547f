"""A `claude` that makes scripted calls and asks leave for them, as Claude Code 2.1 does over its stream of JSON: with
`--permission-prompt-tool stdio` by a `control_request`, whose `control_response` it waits for; else it is denied."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANSWER = "---\ntext: done\n---\n"


def play(script: str) -> None:
    """Make calls, in JSON a list of `[tool, input]`. What was allowed is in the file `allowed`, a line each, as it came
    back; other input in `heard`. `$PRINT` prints a line as it is; a request with `cancelled` in its input is taken back
    once the file `cancel` is there."""
    if "--version" in sys.argv:
        print("2.1.330 (Claude Code)")
        return
    sys.stdin.readline()
    asks = any(
        pair == ("--permission-prompt-tool", "stdio") for pair in zip(sys.argv, sys.argv[1:], strict=False)
    )
    Path("arguments").write_text(json.dumps(sys.argv[1:]))
    Path("pid").write_text(str(os.getpid()))
    _tell(type="system", subtype="init", session_id="s-1", model="scripted", tools=[])
    denials = []
    for number, (tool, content) in enumerate(json.loads(script)):
        call = f"toolu_{number}"
        if tool == "$PRINT":
            print(content["line"], flush=True)
            continue
        block = {"type": "tool_use", "id": call, "name": tool, "input": content}
        _say(f"msg_{number}", block)
        request = {"subtype": "can_use_tool", "tool_name": tool, "input": content, "tool_use_id": call}
        if content.get("cancelled"):
            _tell(type="control_request", request_id=f"r-{number}", request=request)
            while not Path("cancel").exists():
                time.sleep(0.01)
            _tell(type="control_cancel_request", request_id=f"r-{number}")
            response = {"behavior": "deny", "message": "cancelled"}
        elif asks:
            _tell(type="control_request", request_id=f"r-{number}", request=request)
            response = next(_responses(f"r-{number}"))
        else:
            response = {"behavior": "deny", "message": "This command requires approval"}
        allowed = response["behavior"] == "allow"
        if allowed:
            _append("allowed", json.dumps(response["updatedInput"]))
        else:
            denials.append({"tool_name": tool, "tool_use_id": call, "tool_input": content})
        result = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": "done" if allowed else response["message"],
            "is_error": not allowed,
        }
        _tell(type="user", message={"role": "user", "content": [result]}, parent_tool_use_id=None)
    _say("msg_end", {"type": "text", "text": ANSWER}, "end_turn")
    _tell(
        **{"type": "result", "subtype": "success", "is_error": False, "result": ANSWER, "session_id": "s-1"},
        **{"stop_reason": "end_turn", "permission_denials": denials, "total_cost_usd": 0.0},
        usage={"input_tokens": 1, "output_tokens": 1},
    )
    for line in sys.stdin:
        _append("heard", line)


def _responses(request: str) -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] != "control_response":
            _append("heard", line)
        elif message["response"]["request_id"] == request:
            assert message["response"]["subtype"] == "success", message
            yield message["response"]["response"]
    sys.exit("no response came")


def _say(name: str, block: dict[str, Any], stop: str | None = None) -> None:
    message = {"id": name, "role": "assistant", "content": [block], "stop_reason": stop, "usage": {}}
    _tell(type="assistant", message=message, parent_tool_use_id=None)


def _tell(**value: Any) -> None:
    print(json.dumps(value), flush=True)


def _append(name: str, line: str) -> None:
    with Path(name).open("a") as file:
        file.write(f"{line.rstrip()}\n")
