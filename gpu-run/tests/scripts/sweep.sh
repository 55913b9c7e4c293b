#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=2
for lr in 0.1 0.01; do
    srun --exclusive -N1 -n1 python sweep.py --lr $lr > sweep-$lr.log &
done
wait
cat sweep-0.1.log sweep-0.01.log
