#!/bin/bash
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=2 --ntasks-per-node=1
checkpoint() {
    echo "limit near"
    touch checkpoint
}
trap checkpoint USR1
srun bash -c 'until [ -e checkpoint ]; do sleep 0.05; done; python save.py' &
step=$!
(sleep 0.3; kill -USR1 $$) &
wait $step
wait $step
echo "step $?"
