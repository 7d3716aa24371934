#!/bin/bash
# Serves meta-llama/Llama-3.1-405B-Instruct with vLLM 0.33: one engine of tp 8, pp 2.
# Run it once on each of the 2 hosts:
#   ./serve.sh                      finds its node rank by host name
#   NODE_RANK=1 ./serve.sh          sets the node rank
# Additional arguments are passed to vllm serve. Rank map: rankmap.csv.
set -euo pipefail

die() {
  printf 'serve.sh: %s\n' "$*" >&2
  exit 2
}

# interface for NCCL's bootstrap on every host
export NCCL_SOCKET_IFNAME=ens1f0
# without this, Gloo may choose 127.0.0.1
export GLOO_SOCKET_IFNAME=ens1f0
# survives rerouting of a link: 4.096 us x 2^22 = 17 s
export NCCL_IB_TIMEOUT=22
# the maximum that the hardware supports
export NCCL_IB_RETRY_CNT=7

nodes=2
# Hosts by node rank. If the job uses other host names, set PARC_HOSTS.
hosts=(r07n03 r07n04)
[[ -z ${PARC_HOSTS:-} ]] || read -ra hosts <<< "$PARC_HOSTS"

# A full host name takes precedence; a short name must be unique.
find_node_rank() {
  local short full rank hits=0 found=
  short=$(hostname -s 2>/dev/null || hostname)
  full=$(hostname -f 2>/dev/null || hostname)
  for rank in "${!hosts[@]}"; do
    if [[ ${hosts[rank]} == "$full" ]]; then
      printf '%s\n' "$rank"
      return
    fi
    if [[ ${hosts[rank]} == "$short" || ${hosts[rank]%%.*} == "$short" ]]; then
      found=$rank
      hits=$((hits + 1))
    fi
  done
  [[ $hits -eq 1 ]] && printf '%s\n' "$found"
}

named_rank=$(find_node_rank) || named_rank=
NODE_RANK=${NODE_RANK:-$named_rank}
[[ -n $NODE_RANK ]] ||
  die "$(hostname) is not in ${hosts[*]}, or not unique: set NODE_RANK"
# A planned host with the node rank of another host would contradict the rank map.
[[ -z $named_rank || $NODE_RANK == "$named_rank" ]] ||
  die "NODE_RANK is '$NODE_RANK', but $(hostname) has node rank $named_rank in ${hosts[*]}"

[[ ${#hosts[@]} -eq $nodes ]] || die "PARC_HOSTS has ${#hosts[@]} hosts, must be $nodes"
[[ $NODE_RANK =~ ^(0|[1-9][0-9]{0,6})$ && $NODE_RANK -lt $nodes ]] ||
  die "NODE_RANK is '$NODE_RANK', must be 0 to $((nodes - 1))"
# Without VLLM_HOST_IP, vLLM uses the address of the default route.
interface=ens1f0
address=$(ip -o -4 address show dev "$interface" | awk '{ sub("/.*", "", $4); print $4; exit }') ||
  die "no interface $interface"
[[ -n $address ]] || die "interface $interface has no IPv4 address"
export VLLM_HOST_IP=$address

# Arguments of all processes on all hosts.
common=(
  # parallelism
  --tensor-parallel-size 8
  --pipeline-parallel-size 2
  --distributed-executor-backend mp
  # formats
  --dtype bfloat16
  --kv-cache-dtype auto
  # memory and batches
  --max-model-len 32768
  --max-num-seqs 512
  --max-num-batched-tokens 512
  --gpu-memory-utilization 0.92
  --block-size 16
)

pids=()
# start DEVICES ARGUMENT...: run one vllm serve on these GPUs
start() {
  local devices=$1
  shift
  CUDA_VISIBLE_DEVICES=$devices vllm serve meta-llama/Llama-3.1-405B-Instruct "${common[@]}" "$@" &
  pids+=("$!")
}

case $NODE_RANK in
  0) # r07n03: ranks 0-7, API on 8000
    start 0,1,2,3,4,5,6,7 --port 8000 --nnodes 2 --node-rank 0 --master-addr "${hosts[0]}" --master-port 29501 "$@"
    ;;
  1) # r07n04: ranks 8-15, no API server
    start 0,1,2,3,4,5,6,7 --nnodes 2 --node-rank 1 --master-addr "${hosts[0]}" --master-port 29501 --headless "$@"
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
