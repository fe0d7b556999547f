#!/bin/sh
# Two workflows from their first role to $END, in a store of their own: .demo, made anew each time.
# `make demo` calls this with UWF_BIN, the folder that uwf was installed into.
set -eu

cd "$(dirname "$0")/../.."
checkout=$PWD
PATH="$(cd "${UWF_BIN:?is set by make demo}" && pwd):$PATH"
unset UWF_STORE UWF_DEBUG
UWF_STORAGE_ROOT=$checkout/.demo
UWF_FORMAT=text
export PATH UWF_STORAGE_ROOT UWF_FORMAT

say() { printf '\n%s\n\n' "$1"; }

# Shows a command as one would type it, then runs it.
show() {
    printf '$ %s\n' "$*"
    "$@"
}

# Starts a thread and prints its id.
start() { uwf thread start "$@" --format json | sed -n 's/.*"thread": "\([^"]*\)".*/\1/p'; }

rm -rf .demo
uwf init >/dev/null
cp examples/demo/config.yaml .demo/config.yaml

say "1  The release checklist on this checkout. Each role is a command, run by uwf-exec."
show uwf workflow put examples/release-checklist.yaml
release=$(start release-checklist --cwd "$checkout" \
    -p "Can this checkout be released? A quick look: the tests are the golden vectors and the examples.")
show uwf thread run "$release"

say "2  solve-issue on a real issue. Nothing is configured for it, so uwf-rehearse makes up the answers."
show uwf workflow put examples/solve-issue.yaml
issue=$(start solve-issue --prompt-file examples/demo/issue.md)
show uwf thread run "$issue"

say "3  What happened, to read."
show uwf thread read "$release"

say "4  The same in plain git: one commit is one step."
show git --no-pager --git-dir .demo/store.git log --stat --format='%h %s' "refs/uwf/archive/$issue"

cat <<END

Both threads are at their end. The store is .demo; to look around in it:

  export PATH="$checkout/${UWF_BIN#"$checkout"/}:\$PATH" UWF_STORAGE_ROOT="$UWF_STORAGE_ROOT"
  uwf thread list --all
  uwf thread read $issue
  uwf thread fork $issue --at 2
  git --git-dir .demo/store.git log -p refs/uwf/archive/$issue
  uwf workflow graph solve-issue

A model instead of made-up answers: uwf setup. A first hour: docs/guide.md
END
