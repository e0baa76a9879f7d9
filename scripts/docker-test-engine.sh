#!/usr/bin/env bash
# Run a command with a private Docker Engine, which is stopped when the command ends.
#
#   scripts/docker-test-engine.sh COMMAND…
#
# The command gets TEST_DOCKER_SOCKET and TEST_DOCKER_IMAGE (Debian with Python, because a registry
# may not be available), TEST_DOCKER_REGISTRY (the program of a registry, empty without one), or TEST_DOCKER_REASON if no engine can run here: tests skip with that
# reason. Images are cached in a folder, so the first run takes a minute or two, later ones seconds.
set -euo pipefail

image=slipway-test-base:bookworm
cache=${TEST_DOCKER_CACHE:-/var/tmp/slipway-test-docker}
log=$(mktemp)
run=
engine=

stop() {
    if [ -n "$engine" ]; then
        kill "$engine" 2>/dev/null || true
        wait "$engine" 2>/dev/null || true
    fi
    umount "${run:-/nowhere}/root" 2>/dev/null || true
    rm -rf "$log" ${run:+"$run"}
}
trap stop EXIT

without() {
    echo "slipway: no Docker engine for the tests: $1" >&2
    export TEST_DOCKER_REASON=$1
    status=0
    "${command[@]}" || status=$?
    exit "$status"
}

install() {
    local missing=() program
    for program in dockerd:docker.io iptables:iptables debootstrap:debootstrap; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${program%%:*}" >/dev/null || missing+=("${program#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || without "there is no apt to install ${missing[*]} with"
    echo "slipway: installing ${missing[*]} by apt …"
    local get=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
    # Debian's package would also start an engine if there is an init system.
    "${get[@]}" "${missing[@]}" >"$log" 2>&1 ||
        { apt-get update >/dev/null 2>&1 && "${get[@]}" "${missing[@]}" >"$log" 2>&1; } ||
        without "apt could not install ${missing[*]}: $(grep -E '^E:' "$log" | tail -n 1)"
}

start() {
    run=$(mktemp -d /tmp/slipway-docker-XXXXXX)
    mkdir -p "$cache/data"
    export DOCKER_HOST=unix://$run/docker.sock
    dockerd --data-root "$cache/data" --exec-root "$run/exec" --pidfile "$run/pid" \
        --host "unix://$run/docker.sock" >"$log" 2>&1 &
    engine=$!
    for _ in $(seq 300); do
        [ -S "$run/docker.sock" ] && docker info >/dev/null 2>&1 && return 0
        kill -0 "$engine" 2>/dev/null || break
        sleep 0.1
    done
    engine=
    without "dockerd does not start: $(grep -E 'level=(error|fatal)|failed' "$log" | tail -n 1)"
}

make_image() {
    docker image inspect "$image" >/dev/null 2>&1 && return 0
    echo "slipway: making the base image by debootstrap (once) …"
    local root=$run/root mirror
    mkdir "$root"
    # In memory if possible, because dpkg waits for the disk after every file.
    mount -t tmpfs -o size=1500m tmpfs "$root" 2>/dev/null || true
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -m 1 -E '/debian/?$' || true)
    timeout 150 debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        bookworm "$root" ${mirror:+"$mirror"} >"$log" 2>&1 ||
        without "debootstrap failed: $(tail -n 1 "$log")"
    tar -C "$root" -c --exclude=./var/cache/apt --exclude=./var/lib/apt/lists . |
        docker import - "$image" >/dev/null || without "the base image cannot be imported"
    umount "$root" 2>/dev/null || true
    rm -rf "$root"
}

# Unpacked and not installed, because Debian's package would start a registry on all addresses.
unpack_registry() {
    local folder=$cache/registry
    if [ ! -x "$folder/usr/bin/docker-registry" ]; then
        rm -rf "$folder.new" "$folder"
        mkdir -p "$folder.new"
        (cd "$folder.new" && apt-get download docker-registry && dpkg -x docker-registry_*.deb .) \
            >"$log" 2>&1 || return 0
        mv "$folder.new" "$folder"
    fi
    echo "$folder/usr/bin/docker-registry"
}

command=("$@")
[ "$(id -u)" -eq 0 ] || without "starting one needs root"
export PATH=$PATH:/usr/sbin:/sbin
install
start
make_image
# Remove environments of earlier runs, so that they are built again: the tests check their builds.
docker images --quiet slipway-environment | sort -u |
    xargs --no-run-if-empty docker image rm --force >/dev/null
docker image prune --force >/dev/null
export TEST_DOCKER_SOCKET=$run/docker.sock TEST_DOCKER_IMAGE=$image
TEST_DOCKER_REGISTRY=$(unpack_registry)
export TEST_DOCKER_REGISTRY
"${command[@]}"
