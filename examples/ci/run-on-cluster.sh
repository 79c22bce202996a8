#!/bin/sh
# Runs the pods of DIR on a cluster, in a namespace for this job, writes a JUnit report to report.xml, and exits with
# the exit code of the pod "tests".
#
#   KUBECONFIG_FILE=... CI_JOB_ID=... run-on-cluster.sh DIR
set -eu
namespace="ci-${CI_JOB_ID:?}"
config="$(mktemp)"
trap 'kubectl --kubeconfig "$config" delete namespace "$namespace" --ignore-not-found --wait=false || true; rm -f "$config"' EXIT
trap 'exit 143' TERM
# Objects without a namespace go to the namespace of the context.
kubectl --kubeconfig "${KUBECONFIG_FILE:?}" config view --raw --minify --flatten >"$config"
kubectl --kubeconfig "$config" config set-context --current --namespace "$namespace"
runonce run --kubeconfig "$config" --create-namespace --until completed --timeout 20m --exit-code-from tests --junit report.xml --rm "$1"
