#!/bin/sh
# An agent without the kit, of any program that reads a prompt on standard input and prints its answer:
#
#     agents: {mine: {command: sh, args: [examples/agents/pipe.sh, "my-model --quiet"]}}
#
# It is called as pipe.sh PROGRAM THREAD ROLE; its last line is the hash of the step.
set -eu
answer=$(uwf thread prompt "$2" --format text | sh -c "$1")
uwf agent put-step --name pipe-sh -- "$answer"
