#!/usr/bin/env bash
# Starts the pods that the tests of a CI job need, from the same manifests as in production, and
# waits until they are ready. Then runs the tests, and removes the pods whatever happens.
# artifacts/ has the report and the logs of these pods.
#
# The job keeps everything in directories of its own, so that it neither sees, counts nor stops the
# pods of other jobs on this machine. For the same reason it pulls its own images; --images-dir
# reads them from files instead.
set -euo pipefail

job=${CI_JOB_ID:-$$}
own=(--root "/var/lib/runonce-ci/$job" --state "/run/runonce-ci/$job" --log-dir "$PWD/artifacts/pods")

finish() {
	runonce down --all "${own[@]}" && rm -rf "/var/lib/runonce-ci/$job" "/run/runonce-ci/$job"
}
trap finish EXIT

mkdir -p artifacts
runonce run --until ready --timeout 5m --junit artifacts/pods.xml "${own[@]}" deploy/test/
go test ./integration/...
