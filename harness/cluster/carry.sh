# A shard on a node that shares no file system with this machine: in an allocation of that node, on the machine that
# queued it. sbcast carries files there, and srun brings them back.
#
#   sh carry.sh SHARD BUNDLE NAME THERE [WORD]...
#
# SHARD: the shard's folder. BUNDLE: a packed bundle, NAME: its folder's once it is unpacked. THERE: a folder of the node's own.
# WORDs: of the node's `kernel-matrix matrix`, beside --matrix.
set -eu
shard=$1 bundle=$2 name=$3 there=$4
shift 4
work=$there/shards/$SLURM_JOB_ID unpacked=$there/bundles/$name

on_node() { srun --ntasks=1 --quiet "$@" </dev/null; }
clean() {
    on_node rm -rf "$work"
    rm -rf "$shard/there.tar" "$shard/back.tar" "$shard/back"
}
trap clean EXIT

# 1. The bundle, unless the node has unpacked it.
on_node mkdir -p "$work/packed" "$there/bundles" "$there/locks"
on_node test -O "$there" || { echo "error: $there belongs to another user on this node" >&2; exit 1; }
on_node touch "$there/bundles/$name.used"
if ! on_node test -f "$unpacked/complete.json"; then
    for file in "$bundle"/*; do
        sbcast --force "$file" "$work/packed/${file##*/}"
    done
    on_node flock "$there/locks/unpack.lock" sh "$work/packed/unpack.sh" "$unpacked"
    on_node rm -rf "$work/packed"
fi

# 2. The shard, as far as it has got.
tar -C "$shard" -cf "$shard/there.tar" project
sbcast --force "$shard/there.tar" "$work/there.tar"
on_node tar -C "$work" -xf "$work/there.tar"

# 3. Its command. Records are brought back however it ended.
status=0
on_node flock --shared "$there/bundles/$name.used" sh -c 'cd "$1" && shift && exec "$@"' sh "$work/project" \
    "$unpacked/run" matrix --matrix "$work/project/matrix.yaml" "$@" || status=$?
on_node mkdir -p "$work/project/reports"
on_node tar -C "$work/project" -cf - reports >"$shard/back.tar"
tar -C "$shard/project" --exclude=run.json -xf "$shard/back.tar"
mkdir -p "$shard/back"  # a run counts once its run.json is there, whole and last
tar -C "$shard/back" --wildcards -xf "$shard/back.tar" 'reports/runs/*/run.json' || exit $status
mv "$shard/back/reports" "$shard/back.$SLURM_JOB_ID"
trap - EXIT
clean
cd "$shard/back.$SLURM_JOB_ID"
for run in runs/*/run.json; do
    mv "$run" "$shard/project/reports/$run"
done
rm -rf "$shard/back.$SLURM_JOB_ID"
exit $status
