#!/bin/bash
#SBATCH -N 2 -n 4
set -euo pipefail
python prepare.py
srun bash -c 'python train.py; sleep 1; [ $SLURM_PROCID != 2 ] || exit 9; sleep 30'
python never.py
