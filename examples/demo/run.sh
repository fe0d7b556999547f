#!/bin/sh
# Three workflows from their first role to $END, and a run that begins with a persona's menu, in a store of their own: .demo,
# made anew each time. Exits with 1 if a run doesn't come out as it should.
# `make demo` calls this with UWF_BIN, the folder that uwf was installed into.
set -eu

cd "$(dirname "$0")/../.."
bin=$(cd "${UWF_BIN:?is set by make demo}" && pwd)
PATH=$bin:$PATH
unset UWF_STORE UWF_DEBUG
UWF_STORAGE_ROOT=$PWD/.demo
UWF_FORMAT=text
export PATH UWF_STORAGE_ROOT UWF_FORMAT

say() { printf '\n%s\n\n' "$1"; }

# Shows a command as one would type it.
typed() {
    printf '$'
    for word; do
        case $word in
        *' '*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    echo
}

show() {
    typed "$@"
    "$@"
}

# Starts a thread; its id goes to $thread.
start() {
    typed uwf thread start "$@"
    thread=$(uwf thread start "$@" --format json | sed -n 's/.*"thread": "\([^"]*\)".*/\1/p')
}

# Checks the status of a thread and the verdicts of its steps.
expect() { "$bin/python" examples/demo/expect.py "$@"; }

rm -rf .demo
(cd / && uwf init) >/dev/null 2>&1 # of this project it would also write the set-up
uwf doctor --accept-store >/dev/null 2>&1 || : # the store of the demo before is gone on purpose
cp examples/demo/config.yaml .demo/config.yaml

say "1  The release checklist on this checkout. Each role is a command, run by uwf-exec."
show uwf workflow put examples/release-checklist.yaml
start release-checklist --cwd . -p "Can this be released? A quick look only: golden vectors and examples."
release=$thread
show uwf thread run "$release" 2>&1 || [ $? -eq 10 ] # the status of a run that ended as failed
# Only a commit without changes can be tagged, and only once; a source archive has no commit.
tag=failed end=failed
version=$(uwf --version | sed 's/.* //')
if changes=$(git status --porcelain 2>/dev/null) && [ -z "$changes$(git tag --list "v$version")" ]; then
    tag=passed end=completed
fi
expect "$release" $end version=passed tests=passed changelog=passed tag=$tag

say "2  solve-issue on a real issue. Nothing is configured for it, so uwf-rehearse makes up the answers."
show uwf workflow put examples/solve-issue.yaml
start solve-issue --prompt-file examples/demo/issue.md
issue=$thread
show uwf thread run "$issue"
expect "$issue" completed planner=- developer=- reviewer=false developer=- reviewer=true

say "3  The first thread, to read."
show uwf thread read "$release"

say "4  The second thread in plain git: one commit is one step."
show git --no-pager --git-dir .demo/store.git log --oneline --stat "refs/uwf/archive/$issue"

say "5  A thread that fans out: a branch for each file, with a vote in each. The join is a merge commit."
show uwf workflow put examples/fan-out.yaml
start fan-out --workspace shared -p "Audit the examples for words that are spelt wrong."
audit=$thread
show uwf thread run "$audit" 2>&1
expect "$audit" completed lister=- '$FORK=-' '$JOIN=-' reviewer=true
show git --no-pager --git-dir .demo/store.git log --graph --format=%s "refs/uwf/archive/$audit"

say "6  The other way in: not a workflow's name, but somebody, what she offers, and what one types."
show uwf crew import examples/crew/press
show uwf crew menu press/nora
show uwf crew do press/nora "release notes" -p "Version 2 reads CSV files that have a byte order mark."
expect @ completed writer=- checker=wrong writer=- checker=good

cat <<END

All four runs ended as they should. To look around in their store, .demo:

  export PATH="$bin:\$PATH" UWF_STORAGE_ROOT="$UWF_STORAGE_ROOT"
  uwf thread list --all
  uwf thread read $issue
  uwf thread fork $issue --at 2
  git --git-dir .demo/store.git log -p refs/uwf/archive/$issue
  uwf workflow graph solve-issue
  uwf chat press --agent uwf-rehearse

A model instead of made-up answers: uwf setup. A first hour: docs/tutorial.md
END
