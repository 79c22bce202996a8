#!/usr/bin/env bash
# In a CI job: bring up what the tests need from the same manifests as in production, run
# the tests, keep the logs, take everything down.
set -euo pipefail

finish() {
	mkdir -p artifacts
	cp -r /var/log/pods artifacts/ 2>/dev/null || true
	runonce down --all
}
trap finish EXIT

runonce run --timeout 5m deploy/test/
go test ./integration/...
