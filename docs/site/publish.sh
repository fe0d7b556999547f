#!/bin/sh
# publish.sh MIKE VERSION REMOTE: adds the site to the branch gh-pages of a remote, as 0.2 for 0.2.1, and as `latest`.
# What is there of other versions stays.
set -eu
PATH="$(dirname "$1"):$PATH" # mike starts mkdocs
export PATH NO_MKDOCS_2_WARNING=1
git fetch --quiet "$3" gh-pages:gh-pages 2>/dev/null || true # there is none before the first release
"$1" deploy --remote "$3" --push --update-aliases "${2%.*}" latest
"$1" set-default --remote "$3" --push latest
