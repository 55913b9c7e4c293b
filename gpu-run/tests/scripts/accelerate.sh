#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export GPUS_PER_NODE=2
LAUNCHER="accelerate launch \
    --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) \
    --num_machines $SLURM_NNODES \
    --machine_rank \$SLURM_PROCID \
    --main_process_port 29500"
CMD="$LAUNCHER train.py --bf16"
SRUN_ARGS="--wait=60 --kill-on-bad-exit=1"
srun $SRUN_ARGS --jobid $SLURM_JOB_ID bash -c "$CMD"
echo "END $?"
