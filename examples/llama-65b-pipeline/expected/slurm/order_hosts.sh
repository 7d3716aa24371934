#!/bin/bash
# Sourced by job.sbatch: checks that the job has the hosts and GPUs of the plan, puts the hosts in the
# order of the plan, and verifies this order with a job step. Any difference ends the job.
nodes=$1    # number of hosts in the plan
gpus=$2     # GPUs per host
racks=$3    # "rack:hosts rack:hosts ...", in the order of the node ranks
planned=$4  # hosts of the plan, one per line; empty if the plan has no host names
run=$5      # start of the names of all files that this job writes

# srun reads defaults of its options from variables (srun(1)). The shell that submits may have some,
# which would reorder hosts, restrict GPUs, CPUs or memory, or change the output of the steps.
unset SLURM_HOSTFILE SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE SLURM_ARBITRARY_NODELIST PARC_HOSTFILE SLURM_GPUS SLURM_GPUS_PER_TASK SLURM_GPUS_PER_SOCKET \
  SLURM_GRES SLURM_STEP_GRES SLURM_TRES_PER_TASK SLURM_GPU_BIND SLURM_TRES_BIND SLURM_GRES_FLAGS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_SOCKET \
  SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_TRES SLURM_CPU_BIND SLURM_CPUS_PER_GPU SLURM_CORE_SPEC SLURM_THREAD_SPEC SLURM_THREADS_PER_CORE SLURM_HINT \
  SLURM_NCORES_PER_SOCKET SLURM_NSOCKETS_PER_NODE SLURM_OVERCOMMIT SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_BIND SLURM_EXACT SLURM_EXCLUSIVE \
  SLURM_SPREAD_JOB SLURM_USE_MIN_NODES SLURM_CONSTRAINT SLURM_CLUSTER_CONSTRAINT SLURM_CLUSTERS SLURM_REQ_SWITCH SLURM_WAIT4SWITCH SLURM_TIMELIMIT \
  SLURM_SIGNAL SLURM_IMMEDIATE SLURM_EXIT_IMMEDIATE SLURM_DEPENDENCY SLURM_NO_KILL SLURM_LABELIO SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE \
  SRUN_INPUT SRUN_OUTPUT SRUN_ERROR SLURM_EXPORT_ENV SRUN_EXPORT_ENV SRUN_CPUS_PER_TASK SLURM_WORKING_DIR SLURM_REMOTE_CWD SLURM_CONTAINER \
  SRUN_CONTAINER SLURM_TEST_EXEC SLURM_SRUN_MULTI SLURM_BCAST SLURM_THREADS

mismatch() {
  die "placement mismatch: $* (PARC_ANY_SHAPE=1 runs anyway)"
}

# Print the end of the log whose host stopped first, which usually shows the cause.
show_first_failure() {
  local log first=
  for log in "$run".*.log; do
    if [[ -s $log && (-z $first || $log -ot $first) ]]; then first=$log; fi
  done
  if [[ $first ]]; then
    echo "job.sbatch: the first host that stopped wrote $first, which ends with:"
    tail -n 5 -- "$first"
  fi
}

# Print the hosts of this job in node-rank order: each rack of the plan gets a place with as many hosts.
order_by_place() {
  if [[ $racks == *" "* && -z ${PARC_ANY_SHAPE:-} ]]; then
    awk -v shape="$racks" '
      { if (!($1 in size)) place[++places] = $1; host[$1, ++size[$1]] = $2 }
      END {
        runs = split(shape, run, " ")
        for (i = 1; i <= runs; i++) {
          split(run[i], part, ":"); rack[i] = part[1] + 0; hosts[i] = part[2] + 0
          want[rack[i]] += hosts[i]
          if (rack[i] >= racks) racks = rack[i] + 1
        }
        # Each rack gets the first free place that has as many hosts.
        for (r = 0; r < racks; r++) {
          for (i = 1; i <= places && !(r in at); i++)
            if (!taken[i] && size[place[i]] == want[r]) { at[r] = place[i]; taken[i] = 1 }
          if (!(r in at)) bad = 1
          needs = needs " " want[r]
        }
        for (i = 1; i <= places; i++) got = got " " place[i] "=" size[place[i]]
        if (bad) {
          print "the plan requires racks of" needs " hosts, the job got" got
          exit 3
        }
        for (i = 1; i <= runs; i++)
          for (k = 0; k < hosts[i]; k++) print host[at[rack[i]], ++used[rack[i]]]
      }
    ' "$run.places"
    return
  fi
  if [[ $racks == *" "* ]]; then
    echo "PARC_ANY_SHAPE is set: hosts are ordered by place, the plan's racks are not checked" >&2
  fi
  cut -d" " -f2- "$run.places"
}

# Check that hosts of one rack in the plan have one place in Slurm, or no place information at all.
check_planned_racks() {
  local split
  split=$(awk -v shape="$racks" '
    NR == FNR { place[substr($0, length($1) + 2)] = $1; next }
    FNR == 1 { split(shape, run, " ") }
    {
      while (left == 0) { split(run[++n], part, ":"); left = part[2] + 0; rack = part[1] }
      left--
      if (!(rack in first)) { first[rack] = $0; next }
      if (place[$0] != place[first[rack]]) {
        print first[rack] " and " $0 " share a rack in the plan, and are in " place[first[rack]] " and " place[$0]
        exit
      }
    }
  ' "$run.places" "$planned")
  [[ -z $split ]] || mismatch "$split of Slurm"
}

[[ $SLURM_JOB_NUM_NODES -eq $nodes ]] || die "the plan requires $nodes hosts, the job has $SLURM_JOB_NUM_NODES"
# SBATCH_* variables of the shell that submits override the directives of job.sbatch.
[[ ${SLURM_GPUS_ON_NODE:-$gpus} -ge $gpus ]] || die "the plan uses $gpus GPUs per host, the job has $SLURM_GPUS_ON_NODE: unset SBATCH_* before sbatch"
attempt=${SLURM_RESTART_COUNT:-0}
[[ $attempt -le 16 ]] || die "requeued $attempt times, the limit is 16: giving up"

# 1. Query the topology position of each host.
# shellcheck disable=SC2016 # expands on the hosts
srun --mpi=none --ntasks="$nodes" --ntasks-per-node=1 bash -c '
  place=${SLURM_TOPOLOGY_ADDR%"$SLURMD_NODENAME"} # only the name if Slurm has no rack information
  place=${place%.}
  echo "${place:-none} $SLURMD_NODENAME"
' | sort -k1,1V -k2,2V > "$run.places"

# 2. Order the hosts.
if [[ $planned ]] && cmp -s <(sort -- "$planned") <(cut -d" " -f2- "$run.places" | sort); then
  if [[ $racks == *" "* && -z ${PARC_ANY_SHAPE:-} ]]; then check_planned_racks; fi
  cp -- "$planned" "$run.hostfile"
else
  # Requeued, submitted to other hosts, or planned without host names: the plan is valid if the racks have the
  # planned sizes.
  order_by_place > "$run.hostfile" || mismatch "$(cat -- "$run.hostfile")"
  [[ -z $planned ]] || echo "job.sbatch: the hosts differ from the plan and are ordered by place: ignore host names in the rank map"
  export PARC_HOSTFILE=$run.hostfile
fi
[[ $(wc -l < "$run.hostfile") -eq $nodes ]] || die "$run.hostfile must have one line per host, for $nodes hosts"

export SLURM_HOSTFILE=$run.hostfile
MASTER_ADDR=$(head -n 1 "$SLURM_HOSTFILE")
# Two ports per job (the second one for preflight), below the kernel's ephemeral ports from 32768.
MASTER_PORT=$((20000 + SLURM_JOB_ID % 6000 * 2))
export MASTER_ADDR MASTER_PORT

# 3. Verify the order before the job uses GPU hours: task n runs on line n+1 of the host file.
# Slurm 23.11 and later reject --nodes with --distribution=arbitrary.
# shellcheck disable=SC2016 # expands on the hosts
srun --mpi=none --distribution=arbitrary --ntasks="$nodes" bash -c 'echo "$SLURM_PROCID $SLURMD_NODENAME"' |
  sort -n | awk '{ print $2 }' > "$run.order"
diff -u -- "$SLURM_HOSTFILE" "$run.order" >&2 || die "rank map violated: task n is not on line n+1 of $SLURM_HOSTFILE (above: -expected +actual)"
echo "job.sbatch: order of $nodes hosts verified, rendezvous $MASTER_ADDR:$MASTER_PORT, logs $run.*.log"
