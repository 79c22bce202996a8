#!/usr/bin/env bash
# Usage: hack/fuzz.sh COUNT   (for example 20000x or 30s)
#
# Runs every fuzz target of the project, COUNT executions (or that long) each.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:?usage: hack/fuzz.sh COUNT}
found=0
while IFS=: read -r file name; do
	found=$((found + 1))
	echo "fuzz: ./$(dirname "$file") $name"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$count" "./$(dirname "$file")"
done < <(git ls-files -z '*_test.go' | xargs -0 -r grep -HoE '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //')
echo "fuzz: $found targets"
