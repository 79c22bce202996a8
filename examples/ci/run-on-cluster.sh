#!/bin/sh
# Runs the pods of a directory on a cluster, in a namespace of this job's own, and ends with the exit code
# of the container "tests" of the pod "tests". Its report is in JUnit's format.
#
#   KUBECONFIG_FILE=... CI_JOB_ID=... run-on-cluster.sh DIR
set -eu
namespace="ci-${CI_JOB_ID:?}"
config="$(mktemp)"
trap 'kubectl --kubeconfig "$config" delete namespace "$namespace" --ignore-not-found --wait=false || true; rm -f "$config"' EXIT
trap 'exit 143' TERM
# Objects of manifests that name no namespace go to that of the context.
kubectl --kubeconfig "${KUBECONFIG_FILE:?}" config view --raw --minify --flatten >"$config"
kubectl --kubeconfig "$config" config set-context --current --namespace "$namespace"
runonce run --kubeconfig "$config" --create-namespace --until completed --timeout 20m --exit-code-from tests --junit report.xml --rm "$1"
