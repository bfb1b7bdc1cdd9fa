#!/usr/bin/env bash
# usage: vulncheck.sh GOVULNCHECK MODULE_DIR
# Runs govulncheck in a module. A vulnerability fails; a database that cannot be
# reached does not, because nobody can work on a train otherwise.
set -euo pipefail

tool=$1
cd "$2"

status=0
out=$("$tool" ./... 2>&1) || status=$?
if [ "$status" -ne 0 ] && grep -q 'fetching vulnerabilities' <<<"$out"; then
    echo "skipped: the vulnerability database cannot be reached"
    exit 0
fi
printf '%s\n' "$out"
exit "$status"
