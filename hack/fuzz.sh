#!/usr/bin/env bash
# Usage: hack/fuzz.sh COUNT   (for example 20000x or 30s)
#
# Runs every fuzz target of the project, COUNT executions (or that long) each. It goes on after one
# that fails, and names all of those at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:?usage: hack/fuzz.sh COUNT}
found=0 failed=()
while IFS=: read -r file name; do
	found=$((found + 1))
	target="./$(dirname "$file") $name"
	echo "fuzz: $target"
	go test -vet=off -run '^$' -fuzz "^$name\$" -fuzztime "$count" "./$(dirname "$file")" </dev/null || failed+=("$target")
done < <(git ls-files -z '*_test.go' | xargs -0 -r grep -HoE '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //')
for target in "${failed[@]}"; do
	echo "fuzz: failed: $target" >&2
done
echo "fuzz: $found targets, ${#failed[@]} failed"
[ "${#failed[@]}" = 0 ]
