#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:h100:8
#SBATCH --cpus-per-task=12
#SBATCH --mem=800G
#SBATCH --time=1-12
#SBATCH --partition=training
#SBATCH --output=logs/%j.out
#SBATCH --container-image=nvcr.io#nvidia/pytorch:25.01-py3

cd /data && ./prepare.sh
srun python train.py "$@"
