#!/bin/bash
# Balances requests over the 4 engines of serve.sh (package sglang-router).
# Additional arguments are passed to sglang_router.launch_router.
set -euo pipefail

# Hosts (on Kubernetes: pods). If they have other names, set PARC_HOSTS.
hosts=(localhost)
[[ -z ${PARC_HOSTS:-} ]] || read -ra hosts <<< "$PARC_HOSTS"

[[ ${#hosts[@]} -eq 1 ]] || {
  printf 'router.sh: PARC_HOSTS must have 1 host\n' >&2
  exit 2
}
exec python3 -m sglang_router.launch_router --host 0.0.0.0 --port 30000 --worker-urls \
  "http://${hosts[0]}:8000" \
  "http://${hosts[0]}:8001" \
  "http://${hosts[0]}:8002" \
  "http://${hosts[0]}:8003" \
  "$@"
