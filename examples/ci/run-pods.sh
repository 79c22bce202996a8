#!/usr/bin/env bash
# Starts the pods that the tests of a CI job need, from the same manifests as in production.
# Then runs the tests, saves the logs and removes the pods.
set -euo pipefail

finish() {
	mkdir -p artifacts
	cp -r /var/log/pods artifacts/ 2>/dev/null || true
	runonce down --logs deploy/test/
}
trap finish EXIT

runonce run --until ready --timeout 5m deploy/test/
go test ./integration/...
