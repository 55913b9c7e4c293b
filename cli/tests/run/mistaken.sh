#!/bin/bash
#SBATCH --nodes=2

#SBATCH --ntasks-per-nod=4 --gress=gpu:1
