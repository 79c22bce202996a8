# Removes the pods of this job and the directories that it had for itself.
set -euo pipefail

[ -n "${RUNONCE_ROOT:-}" ] || exit 0
sudo -E runonce down --all
sudo rm -rf "$RUNONCE_ROOT" "$RUNONCE_STATE" "$RUNONCE_LOG_DIR"
printf '%s\n' RUNONCE_ROOT= RUNONCE_STATE= RUNONCE_LOG_DIR= >>"$GITHUB_ENV"
