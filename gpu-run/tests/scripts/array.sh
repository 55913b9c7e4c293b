#!/bin/bash
#SBATCH --array=0-3%2
#SBATCH --ntasks=1
sizes=(small base large huge)
size=${sizes[$SLURM_ARRAY_TASK_ID]}
srun python train.py --size $size --seed $SLURM_ARRAY_TASK_ID
