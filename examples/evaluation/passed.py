"""A judge: runs the tests of the folder that it is called in, and prints which part of them passes.

{"score": 0.75, "reason": "3 of 4 tests pass"}
"""

from __future__ import annotations

import io
import json
import sys
import unittest


def main() -> None:
    sys.path.insert(0, "")
    sys.dont_write_bytecode = True
    suite = unittest.defaultTestLoader.discover(".")
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    passed = result.testsRun - len(result.failures) - len(result.errors)
    score = passed / result.testsRun if result.testsRun else 0.0
    print(json.dumps({"score": score, "reason": f"{passed} of {result.testsRun} tests pass"}))


if __name__ == "__main__":
    main()
