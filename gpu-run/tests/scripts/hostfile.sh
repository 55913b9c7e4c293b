#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=2
scontrol show hostnames $SLURM_JOB_NODELIST | sed "s/\$/ slots=$SLURM_NTASKS_PER_NODE/" > hostfile
cat hostfile
export MASTER_ADDR=$(head -n1 hostfile | cut -d' ' -f1)
srun python -u train.py --deepspeed --deepspeed_config zero3.json
