#!/usr/bin/env bash
# Usage: hack/fuzz.sh COUNT   (for example 20000x or 30s)
#
# Runs every fuzz target of the project, COUNT executions (or that long) each. It goes on after one
# that fails, and names all of those at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:?usage: hack/fuzz.sh COUNT}
found=0 failed=()
tests=$(mktemp)
trap 'rm -f "$tests"' EXIT
module=$(go list -m)
corpora=$(go env GOCACHE)/fuzz
while read -r dir; do
	# Only the project's own code counts as covered. "go test -fuzz" builds all modules for that, which takes minutes.
	go test -c -vet=off -gcflags="$module/...=-d=libfuzzer" -o "$tests" "./$dir"
	for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/func //'); do
		found=$((found + 1))
		echo "fuzz: ./$dir $name"
		(cd "$dir" && "$tests" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$count" \
			-test.fuzzcachedir "$corpora/$module/$dir") </dev/null || failed+=("./$dir $name")
	done
done < <(git ls-files -z '*_test.go' | xargs -0 -r grep -lE '^func Fuzz' | xargs -n 1 dirname | sort -u)
for target in "${failed[@]}"; do
	echo "fuzz: failed: $target" >&2
done
echo "fuzz: $found targets, ${#failed[@]} failed"
[ "${#failed[@]}" = 0 ]
