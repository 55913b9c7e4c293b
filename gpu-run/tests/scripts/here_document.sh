#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun bash <<'EOF'
echo "checking on $SLURM_NODEID"
nvidia-smi -L
EOF
