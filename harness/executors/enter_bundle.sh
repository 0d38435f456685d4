#!/bin/sh
# Builds what one verb sees as its root, enters it, and runs the verb there without privileges.
#
# This is the first process of fresh namespaces: it stays until the verb has ended, and when it dies, however it dies,
# the kernel ends whatever else runs in them, and their mounts with them. Nothing is written to the bundle.
#
# usage: enter_bundle.sh ROOT NEW AS [KIND SOURCE TARGET]... -- COMMAND...
#   ROOT    the bundle's root file system
#   NEW     an empty folder, over which the new root is mounted
#   AS      how to become the verb's user: `user`, as root of this machine; `namespace`, in a user namespace
#   COMMAND begins with the assignments of its variables
#   KIND    ro: seen, not written; rw: written, its files not run; run: written, and run; device; link: SOURCE is text
set -eu
root=$1 new=$2 as=$3
shift 3
verb=10002

# The bundle's own programs, by its own loader: this machine's may be older, or missing.
own() {
    program=$1
    shift
    "$root/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
        "$root/usr/$program" "$@"
}

bind() { # SOURCE TARGET OPTIONS
    if [ -d "$1" ]; then
        [ -d "$new$2" ] || own bin/mkdir -p "$new$2"
    else
        [ -d "$new${2%/*}" ] || own bin/mkdir -p "$new${2%/*}"
        : >>"$new$2"
    fi
    own bin/mount -n -o "bind$3" "$1" "$new$2"
}

own bin/mount -n -t tmpfs -o mode=755,nosuid,nodev root "$new"
own bin/mkdir "$new/proc" "$new/sys" "$new/dev" "$new/tmp" "$new/in" "$new/out"
for entry in "$root"/*; do
    name=${entry##*/}
    case $name in proc | sys | dev | tmp | in | out) continue ;; esac
    if [ -L "$entry" ]; then
        own bin/cp -P "$entry" "$new/$name"
    elif [ -d "$entry" ]; then
        bind "$entry" "/$name" ,ro,nosuid,nodev
    fi
done

own bin/mount -n -t tmpfs -o mode=1777,nosuid,nodev,noexec,size=1g tmp "$new/tmp"
own bin/mount -n -t tmpfs -o mode=755,nosuid,noexec,size=1m dev "$new/dev"
own bin/mkdir -m 1777 "$new/dev/shm"
own bin/mount -n -t tmpfs -o mode=1777,nosuid,nodev,noexec,size=1g shm "$new/dev/shm"
for name in null zero full random urandom; do bind "/dev/$name" "/dev/$name" ''; done
own bin/ln -s /proc/self/fd "$new/dev/fd"
# A machine that is a container itself may refuse a fresh one: then what it sees of itself is seen here too.
own bin/mount -n -t proc -o nosuid,nodev,noexec proc "$new/proc" 2>/dev/null || own bin/mount -n --rbind /proc "$new/proc"
own bin/mount -n -t sysfs -o ro,nosuid,nodev,noexec sysfs "$new/sys" 2>/dev/null || true

while [ "$1" != -- ]; do
    case $1 in
    ro) bind "$2" "$3" ,ro,nosuid,nodev ;;
    rw) bind "$2" "$3" ,nosuid,nodev,noexec ;;
    run) bind "$2" "$3" ,nosuid,nodev ;;
    device) bind "$2" "$3" '' ;;
    link) own bin/ln -s "$2" "$new$3" ;;
    *) echo "enter_bundle.sh: no such kind: $1" >&2 && exit 64 ;;
    esac
    shift 3
done
shift

# From here on the programs are those of the new root.
cd "$new"
own sbin/pivot_root . .
PATH=/usr/sbin:/usr/bin
umount -n -l .
cd /out
mount -n -o remount,bind,ro,nosuid,nodev /dev
mount -n -o remount,bind,ro,nosuid,nodev /
# Nothing of this machine's variables but the mark by which the harness knows its own.
set -- env -i "KERNEL_MATRIX_CHILD=${KERNEL_MATRIX_CHILD-}" "$@"
code=0
case $as in
user)
    setpriv --reuid=$verb --regid=$verb --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all -- "$@" ||
        code=$?
    ;;
namespace) # one more of them, so that the verb has no right over this process and its mounts
    unshare --user --map-user=$verb --map-group=$verb -- setpriv --no-new-privs -- "$@" || code=$?
    ;;
esac
exit $code
