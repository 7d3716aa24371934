#!/bin/bash
# Starts the ranks of one host; run it once on each of the 64 hosts:
#   ./launch.sh                   finds its node rank by host name in the file hosts
#   NODE_RANK=3 ./launch.sh       uses the given node rank
# Node rank n has ranks n*4 .. n*4+3. MASTER_PORT overrides the port.
set -euo pipefail

die() {
  printf 'launch.sh: %s\n' "$*" >&2
  exit 2
}

# Keeps the folder of this script as $1: launch.setup may change the working folder and set any variable.
set -- "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)" "$@"
# torchrun would set 1
export OMP_NUM_THREADS=8
# the last lines before a crash reach the log
export PYTHONUNBUFFERED=1
# if a peer fails, the job ends instead of hanging
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
# frees buffers of collectives immediately
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
# less fragmentation: segments of the allocator can grow
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
# survives rerouting of a link: 4.096 us x 2^22 = 17 s
export NCCL_IB_TIMEOUT=22
# the maximum that the hardware supports
export NCCL_IB_RETRY_CNT=7
# requires NVLink between hosts; NCCL fails without it
export NCCL_MNNVL_ENABLE=1
# allocates memory that other hosts of the NVLink domain can map
export NCCL_CUMEM_ENABLE=1
# reductions in the NVLink switches
export NCCL_NVLS_ENABLE=1
# GPUDirect RDMA through the CPU over C2C
export NCCL_NET_GDR_C2C=1
# required by megatron
export NCCL_GRAPH_REGISTER=0

here=$1
shift
nodes=64

# Line n+1 of the hosts file is node rank n. Full names take precedence; short ones must be unique.
find_node_rank() {
  local short full host rank=0 hits=0 found=
  short=$(hostname -s 2>/dev/null || hostname)
  full=$(hostname -f 2>/dev/null || hostname)
  while IFS= read -r host; do
    if [[ $host == "$full" ]]; then
      printf '%s\n' "$rank"
      return
    fi
    if [[ $host == "$short" || ${host%%.*} == "$short" ]]; then
      found=$rank
      hits=$((hits + 1))
    fi
    rank=$((rank + 1))
  done < "$here/hosts"
  [[ $hits -eq 1 ]] && printf '%s\n' "$found"
}

if [[ -z ${NODE_RANK:-} ]]; then
  NODE_RANK=$(find_node_rank) || die "$(hostname) is not in $here/hosts, or its name is not unique there: set NODE_RANK"
fi
first=r01t01
MASTER_ADDR=${MASTER_ADDR:-$first}
[[ $NODE_RANK =~ ^(0|[1-9][0-9]{0,6})$ && $NODE_RANK -lt $nodes ]] ||
  die "NODE_RANK is '$NODE_RANK', must be 0 to $((nodes - 1))"
MASTER_PORT=${MASTER_PORT:-29500}

program=pretrain_gpt.py
[[ -f $program ]] || die "no $program in the current folder $PWD: start in the folder that contains it, or set launch.program to a path that exists on every host"

# shellcheck source=/dev/null
source "$here/../megatron/args.sh"
args=("${MEGATRON_ARGS[@]}")

[[ $NODE_RANK != 0 ]] || echo "launch.sh: MOCK DATA, because job.data of the spec is not set (your own program may load its data itself)"
echo "launch.sh: node $NODE_RANK of $nodes on $(hostname), 4 ranks, rendezvous $MASTER_ADDR:$MASTER_PORT"
# Verify host, GPU and groups of every rank before the program starts; PARC_NO_PREFLIGHT=1 skips this.
if [[ -z ${PARC_NO_PREFLIGHT:-} ]]; then
  torchrun \
    --nnodes=64 \
    --nproc-per-node=4 \
    --node-rank="$NODE_RANK" \
    --master-addr="$MASTER_ADDR" \
    --master-port="$((MASTER_PORT + 1))" \
    "$here/../preflight/check_ranks.py" || exit 4
fi
exec torchrun \
  --nnodes=64 \
  --nproc-per-node=4 \
  --node-rank="$NODE_RANK" \
  --master-addr="$MASTER_ADDR" \
  --master-port="$MASTER_PORT" \
  "$program" ${args[@]+"${args[@]}"} "$@"
