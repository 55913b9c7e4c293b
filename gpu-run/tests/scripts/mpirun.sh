#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
module load openmpi
mpirun -np $SLURM_NTASKS --bind-to none ./all_reduce_perf -b 8 -e 128M
