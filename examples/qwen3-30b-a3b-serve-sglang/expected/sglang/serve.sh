#!/bin/bash
# Serves Qwen/Qwen3-30B-A3B with SGLang 0.5.23: 4 engines of tp 1, pp 1, dp 2, ep 2.
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
  --tp-size 2
  --pp-size 1
  --attn-dp-size 2
  --enable-dp-lm-head
  --moe-dense-tp-size 1
  # experts
  --ep-size 2
  # formats
  --dtype bfloat16
  --kv-cache-dtype auto
  # memory and batches
  --context-length 32768
  --max-running-requests 2048
  --chunked-prefill-size 16384
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
  0) # host 0: ranks 0-7, API on 8000, 8001, 8002, 8003
    start 0,1 --port 8000 --dist-init-addr 127.0.0.1:29501 "$@"
    start 2,3 --port 8001 --dist-init-addr 127.0.0.1:29509 "$@"
    start 4,5 --port 8002 --dist-init-addr 127.0.0.1:29517 "$@"
    start 6,7 --port 8003 --dist-init-addr 127.0.0.1:29525 "$@"
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
