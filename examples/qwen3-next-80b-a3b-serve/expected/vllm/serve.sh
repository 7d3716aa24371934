#!/bin/bash
# Serves Qwen/Qwen3-Next-80B-A3B-Instruct with vLLM 0.33: 2 engines of tp 4, pp 1, ep 4.
# Additional arguments are passed to vllm serve. Rank map: rankmap.csv.
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
  --tensor-parallel-size 4
  --pipeline-parallel-size 1
  --decode-context-parallel-size 2
  --distributed-executor-backend mp
  # experts
  --enable-expert-parallel
  # formats
  --dtype bfloat16
  --kv-cache-dtype auto
  # memory and batches
  --max-model-len 131072
  --max-num-seqs 1024
  --max-num-batched-tokens 8192
  --gpu-memory-utilization 0.92
  --block-size 16
)

pids=()
# start DEVICES ARGUMENT...: run one vllm serve on these GPUs
start() {
  local devices=$1
  shift
  CUDA_VISIBLE_DEVICES=$devices vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct "${common[@]}" "$@" &
  pids+=("$!")
}

case $NODE_RANK in
  0) # gpu01: ranks 0-7, API on 8000, 8001
    start 0,1,2,3 --port 8000 "$@"
    start 4,5,6,7 --port 8001 "$@"
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
