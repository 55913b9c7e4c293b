#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
cat > wrapper.sh <<'EOF'
#!/bin/bash
export OMP_NUM_THREADS=4
export CUDA_DEVICE=$SLURM_LOCALID
exec "$@" --device $CUDA_DEVICE
EOF
chmod +x wrapper.sh
srun ./wrapper.sh python train.py
rm wrapper.sh
