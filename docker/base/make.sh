#!/bin/sh
# Writes the root file system of the container base image: Debian 12, Python 3.11, g++ 12, and nvcc 12.4 of
# Debian 13 (trixie) under /usr/local/cuda. README.md beside this file says what for.
#
#   sudo docker/base/make.sh OUT.tar
#
# DEBIAN_MIRROR      default http://deb.debian.org/debian; http_proxy and https_proxy are honoured
# TMPDIR             where 3 GB are needed meanwhile, default /var/tmp; not mounted noexec or nodev
# SOURCE_DATE_EPOCH  the newest time stamp in the tar, default 2025-01-01; it changes the tar's bytes
# KEEP_WORK=1        keeps the logs and the unpacked trees, and says where
set -eu
umask 022
export LC_ALL=C

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cuda_debs="nvidia-cuda-toolkit nvidia-cuda-dev libcudart12 libcu++-dev libcub-dev libthrust-dev libnvidia-ml-dev"
unreachable="Could not (resolve|connect|handshake)|Failed to fetch|Temporary failure|Connection (failed|timed)"
unreachable="$unreachable|Unable to (connect|locate)|does not have a Release file"
work_mb=3000
tar_mb=700
image_path=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

say() { echo "make.sh: $*" >&2; }

fail() { # what is wrong, the next thing to type
    printf 'make.sh: %s\n%s\n' "$1" "    $2" >&2
    exit 1
}

# ---- inside: runs in mount and process namespaces of its own; everything it starts or mounts dies with it.

debian_tree() {
    # libc_nonshared.a, libgcc.a, libpthread.a and their like are small, and no link works without them.
    mmdebstrap --mode=root --variant=apt --format=directory \
        --include=ca-certificates,g++,g++-12,binutils,python3.11-dev,python3.11-venv \
        --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='Acquire::http::Timeout "20"' \
        --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
        --dpkgopt='path-exclude=/usr/lib/x86_64-linux-gnu/libc.a' \
        --dpkgopt='path-exclude=/usr/lib/x86_64-linux-gnu/libm-*.a' \
        --dpkgopt='path-exclude=/usr/lib/*/libpython3*.a' \
        --dpkgopt='path-exclude=/usr/lib/gcc/*/lib[alt]*san.a' --dpkgopt='path-exclude=/usr/lib/gcc/*/libubsan.a' \
        --dpkgopt='path-exclude=/usr/lib/gcc/*/libstdc++.a' \
        bookworm "$root" "deb [signed-by=$keyring] $mirror bookworm main"
    # Neither this host's mirror nor its name belongs in the image.
    echo "deb http://deb.debian.org/debian bookworm main" >"$root/etc/apt/sources.list"
    rm -rf "$root/etc/resolv.conf" "$root/etc/hostname" "$root/root/.cache" "$root/var/cache/ldconfig/aux-cache" \
        "$root"/var/log/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/lib/dpkg/*-old \
        "$root"/var/cache/debconf/*-old "$root"/tmp/*
    : >"$root/etc/machine-id"
}

cuda_tree() {
    apt_home=$work/apt
    mkdir -p "$apt_home/lists/partial" "$apt_home/cache/archives/partial" "$work/debs" "$raw"
    chown _apt "$apt_home/lists/partial" "$work/debs"
    : >"$apt_home/status"
    echo "deb [arch=amd64 signed-by=$keyring] $mirror trixie main non-free" >"$apt_home/sources.list"
    # An apt of its own: the host's sources, hooks and package lists take no part, and stay as they are.
    cat >"$apt_home/apt.conf" <<END
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "$apt_home/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$apt_home";
Dir::State::status "$apt_home/status";
Dir::Cache "$apt_home/cache";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "20";
END
    export APT_CONFIG="$apt_home/apt.conf"
    apt-get -q update --error-on=any
    # shellcheck disable=SC2086
    (cd "$work/debs" && apt-get -q download $cuda_debs)

    # trixie's libc is newer than bookworm's, so dpkg would refuse these; NVIDIA built the tools for a far older one.
    for name in $cuda_debs; do
        libraries=./usr/lib/x86_64-linux-gnu licence=./usr/share/doc/$name/copyright
        case $name in
        nvidia-cuda-dev) # 2.4 GB of static libraries stay where they are
            set -- ./usr/include "$libraries/libcudart.so" "$libraries/libcudart_static.a" \
                "$libraries/libcudadevrt.a" "$libraries/stubs" "$licence" ;;
        libnvidia-ml-dev) set -- ./usr/include "$licence" ;;
        *) set -- ./usr ;;
        esac
        dpkg-deb --fsys-tarfile "$work/debs/$name"_*.deb | tar -x -C "$raw" --no-same-owner "$@"
    done

    cuda=$work/cuda
    toolkit=$raw/usr/lib/nvidia-cuda-toolkit
    mkdir -p "$cuda/bin" "$cuda/lib64" "$cuda/nvvm/bin"
    for tool in __nvcc_device_query bin2c cu++filt cudafe++ cuobjdump fatbinary nvdisasm nvlink nvprune ptxas; do
        mv "$raw/usr/bin/$tool" "$cuda/bin/"
    done
    mv "$toolkit/bin/nvcc" "$toolkit/bin/crt" "$cuda/bin/" # usr/bin/nvcc is a wrapper with Debian's paths
    mv "$toolkit/bin/cicc" "$cuda/nvvm/bin/"
    mv "$toolkit/libdevice" "$cuda/nvvm/"
    mv "$toolkit/compute-sanitizer" "$cuda/"
    ln -s ../compute-sanitizer/compute-sanitizer "$cuda/bin/compute-sanitizer"
    mv "$raw/usr/include" "$cuda/"
    for library in "$raw"/usr/lib/x86_64-linux-gnu/libcuda* "$raw/usr/lib/x86_64-linux-gnu/stubs"; do
        mv "$library" "$cuda/lib64/"
    done
    # Debian's own profile names Debian's folders; this one is laid out as NVIDIA's.
    cat >"$cuda/bin/nvcc.profile" <<'END'
TOP                 = $(_HERE_)/..
NVVMIR_LIBRARY_DIR  = $(TOP)/nvvm/libdevice
PATH               += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES           += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES          =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
END
}

package_list() {
    printf '# package\tversion\tarchitecture\tsuite\tsha256 of the .deb\n'
    dpkg-query --admindir="$root/var/lib/dpkg" -W \
        -f '${Package}\t${Version}\t${Architecture}\tbookworm\t-\n' | sort
    for name in $cuda_debs; do
        deb=$(echo "$work/debs/$name"_*.deb)
        sum=$(sha256sum "$deb")
        dpkg-deb --show --showformat="\${Package}\t\${Version}\t\${Architecture}\ttrixie\t${sum%% *}\n" "$deb"
    done | sort
}

inside() {
    work=$1 part=$2 mirror=$3
    root=$work/root raw=$work/raw
    cuda_tree >"$work/cuda.log" 2>&1 &
    cuda_pid=$!
    debian_tree >"$work/debian.log" 2>&1
    say "Debian 12 is there; waiting for nvcc"
    wait "$cuda_pid"
    say "nvcc is there; writing the tar"
    exec 2>"$work/tar.log"
    mv "$work/cuda" "$root/usr/local/cuda"
    mkdir -p "$root/usr/share/kernel-matrix/licences"
    for name in $cuda_debs; do
        cp "$raw/usr/share/doc/$name/copyright" "$root/usr/share/kernel-matrix/licences/$name"
    done
    package_list >"$root/usr/share/kernel-matrix/packages.txt"
    tar -c -C "$root" -f "$part" --format=gnu --sort=name --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" --clamp-mtime --exclude='./dev/*' .
}

# ---- outside: checks, the namespaces, and tidying up.

stop() { # exit status
    trap '' HUP INT TERM
    say "stopped; removing what was begun"
    [ -z "${job:-}" ] || { kill -KILL "$job" 2>/dev/null || :; wait "$job" 2>/dev/null || :; }
    exit "$1"
}

tidy() {
    rm -f "$part"
    if [ -n "${KEEP_WORK:-}" ]; then
        say "kept $work"
        return
    fi
    # The mounts went with their namespace; a process of it that was just killed may write once more.
    rm -rf --one-file-system "$work" 2>/dev/null || { sleep 1 && rm -rf --one-file-system "$work"; }
}

free_mb() { df -Pm "$1" | awk 'NR == 2 { print $4 }'; }

explain() {
    tail -n 8 "$work"/*.log >&2
    cat "$work"/*.log >"$work/all"
    if grep -q 'No space left on device' "$work/all"; then
        fail "the disk is full" "df -h $tmp $folder    # then TMPDIR=/larger/disk $0 $out"
    elif grep -Eq 'NO_PUBKEY|EXPKEYSIG|is not signed|were invalid' "$work/all"; then
        fail "the mirror's signature was refused (an old debian-archive-keyring, or not Debian's files)" \
            "apt-get install --only-upgrade debian-archive-keyring"
    elif grep -Eq "$unreachable" "$work/all"; then
        fail "Debian's packages cannot be fetched from $mirror" \
            "curl -I $mirror/dists/trixie/InRelease    # then set DEBIAN_MIRROR, or http_proxy, to one that answers"
    fi
    fail "failed; the end of its log is above" "KEEP_WORK=1 $0 $out    # keeps the whole logs and says where"
}

outside() {
    [ $# = 1 ] && [ "${1#-}" = "$1" ] || fail "one argument is needed, the tar to write" "$0 kernel-matrix-base.tar"
    out=$1
    folder=$(dirname "$out")
    mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
    mirror=${mirror%/}
    tmp=${TMPDIR:-/var/tmp}
    export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-1735689600}"

    [ "$(uname -m)" = x86_64 ] || fail "this recipe is for x86_64, not $(uname -m)" "uname -m"
    [ "$(id -u)" = 0 ] || fail "root is needed, to unpack a Debian" "sudo $0 $out"
    command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing" "apt-get install mmdebstrap"
    [ -e "$keyring" ] || fail "$keyring is missing" "apt-get install debian-archive-keyring"
    [ -d "$folder" ] || fail "$folder: no such folder" "mkdir -p $folder"
    [ ! -d "$out" ] || fail "$out is a folder" "$0 $out/base.tar"
    [ -d "$tmp" ] || fail "TMPDIR=$tmp: no such folder" "mkdir -p $tmp"
    case $mirror in
    *[[:space:]]*) fail "DEBIAN_MIRROR holds a space" "DEBIAN_MIRROR=http://deb.debian.org/debian $0 $out" ;;
    http://?* | https://?*) ;;
    *) fail "DEBIAN_MIRROR=$mirror: not a URL" "DEBIAN_MIRROR=http://deb.debian.org/debian $0 $out" ;;
    esac
    unshare --mount --pid --fork true 2>/dev/null ||
        fail "this root may not mount (an unprivileged container?)" "run it on the host, or in docker run --privileged"
    [ "$(free_mb "$tmp")" -ge "$work_mb" ] ||
        fail "$tmp has $(free_mb "$tmp") MB free; $work_mb MB are needed" "TMPDIR=/larger/disk $0 $out"
    [ "$(free_mb "$folder")" -ge "$tar_mb" ] ||
        fail "$folder has $(free_mb "$folder") MB free; $tar_mb MB are needed" "$0 /larger/disk/${out##*/}"

    work=$(mktemp -d "$tmp/kernel-matrix-base.XXXXXX")
    part=$out.part.$$
    trap tidy EXIT
    trap 'stop 129' HUP
    trap 'stop 130' INT
    trap 'stop 143' TERM
    chmod 755 "$work" # apt fetches as its own user

    say "about 1.1 GB from $mirror; it takes a minute or two"
    unshare --mount --pid --fork --kill-child sh "$0" --inside "$work" "$part" "$mirror" &
    job=$!
    wait "$job" || explain
    job=
    mv "$part" "$out"
    say "wrote $out, $(du -m "$out" | cut -f1) MB; the next thing to type:"
    echo "docker import -c 'ENV CUDA_HOME=/usr/local/cuda' -c 'ENV PATH=$image_path' $out kernel-matrix/base" >&2
}

if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
else
    outside "$@"
fi
