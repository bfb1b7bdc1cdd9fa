#!/usr/bin/env bash
# usage: conformance.sh [FLAG...]
# Installs the pinned test suite for HTTP caches and runs it; the flags are those of
# internal/conformance. Without Node there is nothing to run it with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for command in node npm; do
    if ! command -v "$command" >/dev/null; then
        echo "conformance: not run, there is no $command"
        exit 0
    fi
done

suite=internal/conformance/suite
if ! cmp -s "$suite/package-lock.json" "$suite/node_modules/installed.json"; then
    echo '==> installing the suite'
    (cd "$suite" && timeout 300 npm ci --ignore-scripts --no-audit --no-fund)
    cp "$suite/package-lock.json" "$suite/node_modules/installed.json"
fi
go run ./internal/conformance -suite "$suite" "$@"
