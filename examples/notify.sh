#!/bin/sh
# Shows a desktop notification for each thread that waits for a person, with a button for each option, and answers
# with the button that was pressed. Runs until Ctrl-C. Needs jq, and notify-send of libnotify 0.8 or newer.
set -eu

ask() {
    said=$1
    field() { printf %s "$said" | jq -r "$1"; }
    thread=$(field .thread) step=$(field .step)
    set --
    for number in $(field '.options | keys | .[] + 1'); do
        set -- "$@" --action="$number=$(field ".options[$((number - 1))]")"
    done
    [ $# -gt 0 ] && set -- --wait "$@"
    # What is judged: the task, the last output, the changes.
    shown=$(uwf thread show "$thread" --format json | jq -r '.shown.text // "" | .[:1000]')
    pressed=$(notify-send "$@" -- "$(field .role)" "$(field .question)
$shown
$(field .command)") || return 0
    [ -n "$pressed" ] || return 0
    field ".options[$((pressed - 1))]" | uwf thread answer "$thread" --for "$step" -m - >/dev/null
}

{
    uwf inbox --format json | jq -c '.[]'
    uwf watch --format json | jq -c --unbuffered 'select(.event == "waiting")'
} | while read -r waits; do
    ask "$waits" </dev/null &
done
