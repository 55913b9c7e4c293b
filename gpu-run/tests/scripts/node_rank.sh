#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2

srun --nodes=$SLURM_NNODES --ntasks=$SLURM_NNODES --ntasks-per-node=1 bash -c '
    torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=2 train.py'
