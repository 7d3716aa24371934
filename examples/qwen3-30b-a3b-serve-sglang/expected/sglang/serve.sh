#!/bin/bash
# Serves Qwen/Qwen3-30B-A3B with SGLang 0.5.23: 7 engines of tp 1, pp 1.
# Additional arguments are passed to sglang.launch_server. Rank map: rankmap.csv.
set -euo pipefail

die() {
  printf 'serve.sh: %s\n' "$*" >&2
  exit 2
}


nodes=1
NODE_RANK=${NODE_RANK:-0}
[[ $NODE_RANK =~ ^(0|[1-9][0-9]{0,6})$ && $NODE_RANK -lt $nodes ]] ||
  die "NODE_RANK is '$NODE_RANK', must be 0 to $((nodes - 1))"

# Arguments of all processes on all hosts.
common=(
  # parallelism
  --tp-size 1
  --pp-size 1
  # formats
  --dtype bfloat16
  --kv-cache-dtype auto
  # memory and batches
  --context-length 32768
  --max-running-requests 1024
  --chunked-prefill-size 8192
  --mem-fraction-static 0.92
  --page-size 16
  # server
  --host 0.0.0.0
)

pids=()
# start DEVICES ARGUMENT...: run one sglang.launch_server on these GPUs
start() {
  local devices=$1
  shift
  CUDA_VISIBLE_DEVICES=$devices python3 -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B "${common[@]}" "$@" &
  pids+=("$!")
}

case $NODE_RANK in
  0) # host 0: ranks 0-6, API on 8000, 8001, 8002, 8003, 8004, 8005, 8006
    start 0 --port 8000 "$@"
    start 1 --port 8001 "$@"
    start 2 --port 8002 "$@"
    start 3 --port 8003 "$@"
    start 4 --port 8004 "$@"
    start 5 --port 8005 "$@"
    start 6 --port 8006 "$@"
    ;;
esac

# If one process ends, stop the other processes of this host; forward signals to all of them.
stop() {
  trap - TERM INT
  kill -TERM "${pids[@]}" 2>/dev/null || true
}
trap stop TERM INT
status=0
wait -n "${pids[@]}" || status=$?
stop
wait "${pids[@]}" || true
exit "$status"
