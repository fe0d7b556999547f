#!/bin/bash
export PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1
if python3 /tests/check.py; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
