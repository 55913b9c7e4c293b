#!/bin/bash
#SBATCH --dependency=afterok:4711
srun true
