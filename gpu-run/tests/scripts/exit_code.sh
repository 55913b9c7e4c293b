#!/bin/bash
#SBATCH -N 2 -n 2
srun bash -c 'sleep $(((1 - SLURM_NODEID) * 30)); exit $((SLURM_NODEID + 1))'
code=$?
if [ $code -ne 0 ]; then
    echo "failed with $code" >&2
    python report.py $code
fi
exit $code
