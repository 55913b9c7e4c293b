#!/bin/bash
#SBATCH -J torchrun
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2

nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))
head=${nodes[0]}
echo "head $head of ${#nodes[@]}"

srun torchrun \
    --nnodes "$SLURM_NNODES" \
    --nproc_per_node "$SLURM_GPUS_ON_NODE" \
    --rdzv_id "$SLURM_JOB_ID" \
    --rdzv_backend c10d \
    --rdzv_endpoint "$head:29500" \
    train.py
