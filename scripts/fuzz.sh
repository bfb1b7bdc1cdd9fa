#!/usr/bin/env bash
# Fuzzes every fuzz target of the repository, one after the other, for FUZZTIME each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort || true)
while IFS=: read -r file func; do
    [ -n "$file" ] || continue
    name=${func#func }
    echo "==> $(dirname "$file") $name"
    (cd "$(dirname "$file")" && go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-10s}" .)
done <<<"$targets"
