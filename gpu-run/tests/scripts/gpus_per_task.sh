#!/bin/bash
#SBATCH --ntasks=4 --nodes=2
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun --cpus-per-task=$SLURM_CPUS_PER_TASK --gpus-per-task=1 --gpu-bind=none \
    bash -c 'echo "$SLURM_PROCID has $CUDA_VISIBLE_DEVICES and $OMP_NUM_THREADS threads"'
