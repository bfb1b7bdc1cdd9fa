#!/usr/bin/env bash
# Installs redis-server and redis-sentinel when they are missing and when that
# is possible without asking anybody; otherwise says how, and goes on: the tests
# that need them are skipped, or fail when CI=true.
set -euo pipefail

packages=()
command -v redis-server >/dev/null || packages+=(redis-server)
command -v redis-sentinel >/dev/null || packages+=(redis-sentinel)
[ "${#packages[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
    as_root=(sudo -n)
fi

install() {
    # The tests start servers of their own; RUNLEVEL=1 keeps the packages from
    # starting a service where the system asks.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -q --no-install-recommends "${packages[@]}" </dev/null
}

if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
    echo "installing ${packages[*]}"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if install >"$log" 2>&1; then exit 0; fi
    # Package lists may be absent or old: fetch them once, then try again.
    if "${as_root[@]}" apt-get update -q </dev/null >"$log" 2>&1 && install >"$log" 2>&1; then exit 0; fi
    tail -n 5 "$log" >&2
fi

echo "redis-server and redis-sentinel are missing; install them with: apt-get install redis-server redis-sentinel (macOS: brew install redis)" >&2
