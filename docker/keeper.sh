# The first process of a cell: it takes what the cell may read from its standard input, waits while the verb runs,
# and gives back what the verb left. It runs as a user whom the verb's user cannot touch, and starts no process once
# the verb runs, so that a cell full of processes can still be read.
#
# Its standard input stays connected to the harness. When that ends, however it ends, this ends too, the engine ends
# whatever else runs in the cell, and removes it.
#
# usage: sh -c KEEPER keeper SIZE_BYTES NAME...    NAMEs in /out are given back
set -eu
size=$1
shift
umask 022
head -c "$size" | tar -xpf - -C /
echo ready
read -r done_now || exit 0

# Who waits at /link for the verb learns that it has ended (harness/worker/channel.py). Opened to be read and written, so
# that a pipe which the verb left there holds nothing up; nothing is written.
[ ! -d /link ] || true <>/link/ended 2>/dev/null || true

# The kernel's counts of what it killed or refused here: control groups v1, then v2. A machine that has no memory left
# kills too; only where this group was at its own limit was that the reason.
at_limit=0
if [ -r /sys/fs/cgroup/memory/memory.max_usage_in_bytes ]; then
    read -r most </sys/fs/cgroup/memory/memory.max_usage_in_bytes
    read -r limit </sys/fs/cgroup/memory/memory.limit_in_bytes
    [ "$most" -lt "$limit" ] || at_limit=1
fi
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$file" ] || continue
    while read -r key value; do
        [ "$key" != max ] || at_limit=$value
        [ "$key" != oom_kill ] || [ "$at_limit" = 0 ] || echo "memory $value"
    done <"$file"
done
for file in /sys/fs/cgroup/pids/pids.events /sys/fs/cgroup/pids.events; do
    [ -r "$file" ] || continue
    while read -r key value; do
        [ "$key" = max ] && echo "processes $value"
    done <"$file"
done
echo parcel
exec tar -cf - -C /out --ignore-failed-read --hard-dereference -- "$@"
