#!/bin/bash
# Starts all ranks on the host of the plan:
#   ./launch.sh [more arguments for the program]
# Node rank n has ranks n*8 .. n*8+7. MASTER_PORT overrides the port.
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

here=$1
shift
nodes=1

NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
[[ $NODE_RANK =~ ^(0|[1-9][0-9]{0,6})$ && $NODE_RANK -lt $nodes ]] ||
  die "NODE_RANK is '$NODE_RANK', must be 0 to $((nodes - 1))"
MASTER_PORT=${MASTER_PORT:-29500}

program=pretrain_gpt.py
[[ -f $program ]] || die "no $program in the current folder $PWD: start in the folder that contains it, or set launch.program to a path that exists on every host"

# shellcheck source=/dev/null
source "$here/../megatron/args.sh"
args=("${MEGATRON_ARGS[@]}")

[[ $NODE_RANK != 0 ]] || echo "launch.sh: MOCK DATA, because job.data of the spec is not set (your own program may load its data itself)"
echo "launch.sh: node $NODE_RANK of $nodes on $(hostname), 8 ranks, rendezvous $MASTER_ADDR:$MASTER_PORT"
# Verify host, GPU and groups of every rank before the program starts; PARC_NO_PREFLIGHT=1 skips this.
if [[ -z ${PARC_NO_PREFLIGHT:-} ]]; then
  torchrun \
    --nnodes=1 \
    --nproc-per-node=8 \
    --node-rank="$NODE_RANK" \
    --master-addr="$MASTER_ADDR" \
    --master-port="$((MASTER_PORT + 1))" \
    "$here/../preflight/check_ranks.py" || exit 4
fi
exec torchrun \
  --nnodes=1 \
  --nproc-per-node=8 \
  --node-rank="$NODE_RANK" \
  --master-addr="$MASTER_ADDR" \
  --master-port="$MASTER_PORT" \
  "$program" ${args[@]+"${args[@]}"} "$@"
