#!/bin/bash
#SBATCH -N2 -n4
set -e
workdir=run-$SLURM_JOB_ID
mkdir -p "$workdir"
cd "$workdir"
python prepare.py | tee prepared

srun python train.py --data "$(cat prepared | wc -l)"
srun -n1 python evaluate.py
cd ..
rm -r "$workdir"
echo done
