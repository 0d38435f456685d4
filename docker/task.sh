# The first process of a task's container: it runs the task, and writes down what the kernel counted against limits.
# It starts no process once the task has ended, so that a container full of processes can still be read. A task can kill
# every process beside this one.
#
# usage: sh -c TASK task COMMAND...
"$@"
code=$?

# Who waits at /link for the task learns that it has ended (harness/worker/channel.py). Opened to be read and written, so
# that a pipe which the task left there holds nothing up; nothing is written.
[ ! -d /link ] || true <>/link/ended 2>/dev/null || true

# Of control groups of version 2, and of version 1.
for file in memory.events pids.events memory/memory.oom_control memory/memory.max_usage_in_bytes \
    memory/memory.limit_in_bytes pids/pids.events; do
    [ -r "/sys/fs/cgroup/$file" ] || continue
    while read -r line; do echo "${file##*/} $line"; done <"/sys/fs/cgroup/$file"
done >/out/.limits 2>/dev/null
exit $code
