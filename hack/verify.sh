#!/usr/bin/env bash
# Fails when something generated differs from what the source would generate now.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT

cp -r docs "$before"
make docs >/dev/null
if ! diff -ru "$before/docs" docs; then
	echo "verify: stale; make docs has just renewed it, commit the result" >&2
	exit 1
fi
go mod verify >/dev/null || { echo "verify: modules differ from go.sum" >&2; exit 1; }
go mod tidy -diff || { echo "verify: go.mod is not tidy" >&2; exit 1; }
echo "verify: all is current"
