# Functions of the stand-ins for schedulers' remote starters, which the tests put on the PATH.
# Like the real ones they start a task in a session of its own: their end is not its end.

note() { # HOST: record the call
    [ -z "$STANDIN_CALLS" ] || echo "$1" >>"$STANDIN_CALLS"
}

forward() { # COMMAND...: run it with the input of this program, and end with its exit code
    exec 3<&0
    cat <&3 | setsid "$@" 3<&- &
    task=$!
    feeder=$(jobs -p)
    exec 3<&-
    trap 'kill $feeder 2>/dev/null' EXIT
    trap 'exit 143' TERM
    wait $task
}
