#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH --output=main.log
srun -l --output=log-%t.txt --error=err-%t.txt python train.py
for task in 0 1 2 3; do
    cat log-$task.txt
done
