#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
eval "$(conda shell.bash hook)"
conda activate jax
export XLA_PYTHON_CLIENT_PREALLOCATE=false
srun --export=ALL,XLA_FLAGS=--xla_gpu_autotune_level=0 --unbuffered \
    bash -c 'echo "$SLURM_STEP_NUM_NODES $SLURM_LOCALID $XLA_FLAGS $XLA_PYTHON_CLIENT_PREALLOCATE"; python jax_train.py'
