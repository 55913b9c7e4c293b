#!/bin/bash
#SBATCH -N 2
for node in $(scontrol show hostnames); do
    srun -N1 -n1 -w $node python stage.py --node $node &
done
wait
srun --ntasks-per-node=2 python train.py
