# Runs the manifests in $PATHS with $FLAGS. The job has directories of its own, so that it neither sees nor stops the pods of
# others on this machine. Later steps find them in the environment: "sudo -E runonce logs web" shows the log of a pod that is
# kept.
set -euo pipefail

if [ -z "${RUNONCE_ROOT:-}" ]; then
  sudo mkdir -p /var/lib/runonce-ci
  RUNONCE_ROOT="$(sudo mktemp -d /var/lib/runonce-ci/XXXXXXXX)"
  job="$(basename "$RUNONCE_ROOT")"
  RUNONCE_STATE="/run/runonce-ci/$job" RUNONCE_LOG_DIR="/var/log/runonce-ci/$job"
  export RUNONCE_ROOT RUNONCE_STATE RUNONCE_LOG_DIR
  printf '%s\n' "RUNONCE_ROOT=$RUNONCE_ROOT" "RUNONCE_STATE=$RUNONCE_STATE" "RUNONCE_LOG_DIR=$RUNONCE_LOG_DIR" >>"$GITHUB_ENV"
fi

files="$(mktemp -d "$RUNNER_TEMP/runonce-XXXXXXXX")"
echo "files=$files" >>"$GITHUB_OUTPUT"
mapfile -t paths < <(grep -v '^ *$' <<<"$PATHS")
mapfile -t flags < <(grep -v '^ *$' <<<"$FLAGS")
# Flags take precedence over the environment.
export RUNONCE_UNTIL="${RUNONCE_UNTIL:-completed}"
[ "$KEEP" = true ] || export RUNONCE_RM=true

code=0
sudo -E runonce run -o github --junit "$files/report.xml" --logs-to "$files/logs" "${flags[@]}" -- "${paths[@]}" || code=$?
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
sudo chown -R "$(id -u):$(id -g)" "$files"
[ "$KEEP" = true ] || bash "$(dirname "$0")/down.sh"
exit "$code"
