#!/bin/bash
#SBATCH -N 2 -n 4
set -euo pipefail
python prepare.py
srun bash -c 'python train.py; touch up-$SLURM_PROCID; [ $SLURM_PROCID = 2 ] || exec sleep 30
until [ -e up-0 ] && [ -e up-1 ] && [ -e up-3 ]; do sleep 0.1; done; exit 9'
python never.py
