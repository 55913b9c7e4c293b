#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out

module purge
module load cuda/12.4 nccl

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=12340
export WORLD_SIZE=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))
echo "$WORLD_SIZE processes, first on $MASTER_ADDR"

srun python train.py --epochs 3
