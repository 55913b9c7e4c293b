#!/bin/bash
#SBATCH -a 1-9:2%2 --gres=gpu:1g.10gb
#SBATCH --qos=low --no-requeue
python sweep.py --seed "$SLURM_ARRAY_TASK_ID"
