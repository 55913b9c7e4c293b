#!/bin/bash
#SBATCH -N 2 --ntasks-per-node 2 --gres gpu:h100:2
export APPTAINERENV_NCCL_DEBUG=INFO
srun --mpi=pmix --cpu-bind=none apptainer exec --nv \
    --bind /data image.sif \
    python train.py
