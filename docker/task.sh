# The first process of a task's container: it runs the task, and ends it at a limit that whoever started it does not reach.
# It starts no process once the task has ended, so that a container full of processes can still be read. A task can kill
# every process beside this one.
#
# usage: sh -c TASK task SECONDS COMMAND...
timeout --signal=KILL "$@"
code=$?

# Who waits at /link for the task learns that it has ended (harness/worker/channel.py). Opened to be read and written, so
# that a pipe which the task left there holds nothing up; nothing is written.
[ ! -d /link ] || true <>/link/ended 2>/dev/null || true
exit $code
