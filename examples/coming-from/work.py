"""The work itself, in place of a model: a writer, and a critic who wants a second draft."""

import json
import sys


def write(topic: str, drafts: int) -> str:
    return f"Draft {drafts + 1} on {topic}"


def review(text: str) -> bool:
    return not text.startswith("Draft 1")


if __name__ == "__main__":
    step = json.load(sys.stdin)
    if sys.argv[1] == "write":
        print(json.dumps({"text": write(step["start"]["prompt"], len(step["steps"]) // 2)}))
    else:
        print(json.dumps({"approved": review(step["steps"][-1]["output"]["text"])}))
