#!/bin/sh
# Unpacks a bundle for a machine with neither container engine nor registry.
#
#   sh unpack.sh [--only ENVIRONMENT]... [--any-gpu] DIR
#
# --only: not all environments; one that is packed as a difference brings those that it needs.
# --any-gpu: also where the GPU or the driver cannot run them.
#
# It lies beside the parts, and checks all of them, and this machine, before it unpacks anything. It needs a POSIX
# shell, tar, and the usual small programs; zstd and sha256sum come in tools.tar. Called again, it goes on with what is
# missing in DIR. Then: DIR/run matrix, in the folder of a project.
set -eu
umask 022
LC_ALL=C
export LC_ALL

say() { echo "unpack.sh: $*"; }

fail() { # what is wrong, the next thing to do
    printf 'unpack.sh: %s\n  remedy: %s\n' "$1" "$2" >&2
    exit "${3:-30}"
}

usage() { fail "$1" "sh unpack.sh [--only ENVIRONMENT]... [--any-gpu] DIR" 64; }

read_contents() { # contents.txt into variables; archives and parts stay in the file
    [ -f "$here/contents.txt" ] || fail "contents.txt is missing" "copy the whole bundle: contents.txt, manifest.json, tools.tar, parts"
    lines=0 ended=no
    while read -r word value rest; do
        case $word in
        format) [ "$value" = 1 ] || fail "a bundle of format $value" "use the unpack.sh that came with it" ;;
        manifest) manifest_sha256=$value ;;
        machine) machine=$value ;;
        architecture) architecture=$value ;;
        driver) least_driver=$value ;;
        end) [ "$value" = "$lines" ] && ended=yes ;;
        esac
        lines=$((lines + 1))
    done <"$here/contents.txt"
    [ "$ended" = yes ] || fail "contents.txt is not whole" "copy it again"
}

archives() { while read -r word name rest; do [ "$word" != archive ] || echo "$name"; done <"$here/contents.txt"; }

like() { # the environment that this archive is the difference to, or nothing
    while read -r word name size count like; do [ "$word $name" != "archive $1" ] || echo "$like"; done <"$here/contents.txt"
}

unpacked() { # whether an archive is in DIR, whole
    if [ "$1" = shared ]; then [ -d "$dir/root" ]; else [ -d "$dir/environments/$1" ]; fi
}

is_in() { # word, words
    case " $2 " in *" $1 "*) return 0 ;; esac
    return 1
}

choose() { # which archives are wanted, and which of them are still to be unpacked
    known=$(archives | tr '\n' ' ')
    for name in $only; do
        { is_in "$name" "$known" && [ "$name" != shared ]; } ||
            fail "the bundle has no environment $name" "it has: ${known#shared }" 64
        while name=$(like "$name") && [ -n "$name" ]; do only="$only $name"; done
    done
    wanted=
    for name in $known; do
        [ "$name" != shared ] && [ -n "$only" ] && ! is_in "$name" "$only" || wanted="$wanted $name"
    done
    todo=
    for name in $wanted; do unpacked "$name" || todo="$todo $name"; done
}

check_target() { # DIR is new, empty, or holds this very bundle
    [ ! -e "$dir" ] || [ -d "$dir" ] || fail "$dir is a file" "name a folder" 64
    [ -d "$dir" ] || return 0
    if [ -f "$dir/manifest.json" ]; then
        cmp -s "$dir/manifest.json" "$here/manifest.json" || fail "$dir holds another bundle" "name another folder" 64
        return 0
    fi
    for file in "$dir"/* "$dir"/.[!.]*; do
        case ${file##*/} in .tools | .manifest) continue ;; esac
        [ ! -e "$file" ] || fail "$dir is not empty" "name a new folder" 64
    done
}

at_least() { # whether a dotted version is not older than another
    have=$1. want=$2.
    while [ -n "$want" ]; do
        h=${have%%.*} w=${want%%.*}
        [ "${h:-0}" -eq "$w" ] || { [ "${h:-0}" -gt "$w" ]; return; }
        have=${have#*.} want=${want#*.}
    done
}

loaded_driver() { # the version of the kernel module, or nothing
    [ -r /proc/driver/nvidia/version ] || return 0
    read -r line </proc/driver/nvidia/version
    for word in $line; do
        case $word in [0-9]*.[0-9]*) echo "$word" && return ;; esac
    done
}

check_machine() {
    here_machine=$(uname -m)
    [ "$here_machine" = "$machine" ] || fail "this machine is $here_machine; the bundle is for $machine" "unpack it on $machine"
    [ -z "$any_gpu" ] || return 0
    gpus=$(nvidia-smi --query-gpu=compute_cap,driver_version --format=csv,noheader 2>/dev/null) || gpus=
    driver=$(loaded_driver) capabilities= fits=
    while IFS=', ' read -r capability version _; do
        case $capability in [0-9]*.[0-9]*) ;; *) continue ;; esac
        capabilities="$capabilities $capability"
        driver=${version:-$driver}
        [ "$(echo "$capability" | tr -d .)" != "$architecture" ] || fits=yes
    done <<END
$gpus
END
    if [ -n "$driver" ] && ! at_least "$driver" "$least_driver"; then
        fail "the NVIDIA driver here is $driver; these wheels need $least_driver or newer" "update the driver"
    fi
    if [ -n "$capabilities" ] && [ -z "$fits" ]; then
        fail "the bundle holds GPU code for compute capability $architecture; the GPUs here are of$capabilities" \
            "pack one for them: nox -s bundle -- --arch $(echo "${capabilities##* }" | tr -d .)"
    fi
    [ -n "$capabilities" ] || say "note: no GPU is seen here${driver:+, though driver $driver is loaded}; cells can run on the CPU"
}

start_tools() { # the carried programs, in DIR
    [ -f "$here/tools.tar" ] || fail "tools.tar is missing" "copy it from where the bundle was packed"
    rm -rf "$dir/.tools"
    mkdir -p "$dir/.tools" || fail "$dir cannot be made" "name a folder that you may write to"
    tar -xf "$here/tools.tar" -C "$dir/.tools" || fail "tools.tar cannot be unpacked" "copy it again"
    for program in zstd sha256sum; do
        "carried_$program" --version >/dev/null 2>&1 ||
            fail "the carried $program does not start in $dir" "name a folder on a disk that is not mounted noexec; else copy tools.tar again"
    done
}

carried() { "$dir/.tools/loader" --library-path "$dir/.tools/lib" "$@"; }
carried_zstd() { carried "$dir/.tools/bin/zstd" "$@"; }
carried_sha256sum() { carried "$dir/.tools/bin/sha256sum" "$@"; }

is_sha256() { # file, digest
    digest=$(carried_sha256sum <"$1") && [ "${digest%% *}" = "$2" ]
}

each_part() { # calls a function with the name, size and digest of every part that is to be unpacked
    while read -r word archive name size digest; do
        if [ "$word" = part ] && is_in "$archive" "$todo"; then "$1" "$name" "$size" "$digest"; fi
    done <"$here/contents.txt"
}

is_there() { [ -f "$here/$1" ] || missing="$missing $1"; }
has_size() {
    size_here=$(($(wc -c <"$here/$1")))
    [ "$size_here" -eq "$2" ] || fail "$1 has $size_here bytes instead of $2: it is not whole" "copy it again"
}
is_sound() { is_sha256 "$here/$1" "$3" || fail "$1 is damaged: its SHA-256 is not the manifest's" "copy it again"; }

check_parts() {
    missing=
    each_part is_there
    [ -z "$missing" ] || fail "parts are missing:$missing" "copy them here"
    each_part has_size
    is_sha256 "$here/manifest.json" "$manifest_sha256" || fail "manifest.json is damaged, or another bundle's" "copy it again, with contents.txt"
    each_part is_sound
}

check_disk() {
    bytes=0 files=0
    while read -r word name size count _; do
        if [ "$word" = archive ] && is_in "$name" "$todo"; then bytes=$((bytes + size)) files=$((files + count)); fi
    done <"$here/contents.txt"
    need_kb=$((bytes / 1024 + files * 4)) # a file fills its last block
    free_kb=$(df -Pk "$dir" | while read -r _ _ _ free _; do echo "$free"; done | tail -n 1)
    [ "$free_kb" -ge "$need_kb" ] ||
        fail "$dir: $((free_kb / 1024)) MiB are free there, and $((need_kb / 1024)) are needed" "name a folder on another disk; or --only ENVIRONMENT"
}

stream() { each_part send | { carried_zstd -dcq --long=27 || echo broken >"$dir/.part/broken"; }; }
send() { cat "$here/$1"; }

link_like() { # a tree of an environment's files, less what is gone; they are its own where links cannot be made
    cp -al "$dir/environments/$2" "$dir/.part/tree" 2>/dev/null || {
        rm -rf "$dir/.part/tree"
        cp -pPR "$dir/environments/$2" "$dir/.part/tree"
    } || return 1
    while read -r word name path; do # before tar writes, which may not unlink first: a link's file is not ours
        [ "$word $name" != "gone $1" ] || rm -rf "$dir/.part/tree/${path:?}" || return 1
    done <"$here/contents.txt"
}

unpack_one() { # a whole archive beside its place, then in its place
    say "unpacking $1"
    rm -rf "$dir/.part"
    mkdir -p "$dir/.part" "$dir/environments"
    todo=$1 like=$(like "$1")
    if [ -n "$like" ]; then link_like "$1" "$like"; else mkdir "$dir/.part/tree"; fi &&
        stream | tar -xof - -C "$dir/.part/tree" && [ ! -e "$dir/.part/broken" ] ||
        fail "$1 could not be unpacked" "see above: is $dir full? Then start the same command again"
    if [ "$1" = shared ]; then
        for name in packages python run lib root; do # root last: it says that the others are there
            rm -rf "${dir:?}/$name"
            mv "$dir/.part/tree/$name" "$dir/$name"
        done
    else
        mv "$dir/.part/tree" "$dir/environments/$1"
    fi
    rm -rf "$dir/.part"
}

finish() {
    there=
    for name in $known; do
        if [ "$name" != shared ] && unpacked "$name"; then there="$there${there:+, }\"$name\""; fi
    done
    echo "{\"manifest_sha256\": \"$manifest_sha256\", \"environments\": [$there]}" >"$dir/.complete"
    mv "$dir/.complete" "$dir/complete.json"
    rm -rf "$dir/.tools"
}

main() {
    only= dir= any_gpu=
    while [ $# -gt 0 ]; do
        case $1 in
        --only)
            [ $# -ge 2 ] || usage "--only: which environment?"
            only="$only $2"
            shift
            ;;
        --only=*) only="$only ${1#*=}" ;;
        --any-gpu) any_gpu=yes ;;
        -*) usage "$1 is no option" ;;
        *)
            [ -z "$dir" ] || usage "two folders were named"
            dir=$1
            ;;
        esac
        shift
    done
    [ -n "$dir" ] || usage "where to?"
    case $dir in /*) ;; *) dir=$(pwd)/$dir ;; esac
    here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
    read_contents
    check_target
    choose
    check_machine
    if [ -z "$todo" ] && [ -f "$dir/complete.json" ]; then
        say "$dir: already there"
        exit 0
    fi
    start_tools
    check_parts
    check_disk
    cp "$here/manifest.json" "$dir/.manifest"
    mv "$dir/.manifest" "$dir/manifest.json"
    rm -f "$dir/complete.json"
    remaining=$todo
    for name in $remaining; do unpack_one "$name"; done
    finish
    say "done: $dir/run matrix, in the folder of a project"
}

main "$@"
exit
