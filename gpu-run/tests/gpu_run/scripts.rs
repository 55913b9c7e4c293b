//! Batch scripts as people write them, each on two hosts: which lines ran where, against what sbatch(1) and srun(1) say.
//!
//! Programs are stubs that say their name, arguments, pod and rank. A pod's name is written node-0, node-1.

use crate::job::{Job, others_code};

/// A script's name, the job's tasks on each node and in all, its exit code, and the lines of output, sorted.
type Row = (&'static str, u32, u32, i32, &'static [&'static str]);

const TABLE: [Row; 20] = [
    (
        "accelerate",
        1,
        2,
        0,
        &[
            "END 0",
            "accelerate launch --num_processes 4 --num_machines 2 --machine_rank 0 --main_process_port 29500 train.py --bf16 @0 rank 0",
            "accelerate launch --num_processes 4 --num_machines 2 --machine_rank 1 --main_process_port 29500 train.py --bf16 @1 rank 1",
        ],
    ),
    ("array", 1, 1, 0, &["python train.py --size large --seed 2 @0 rank 0"]),
    (
        "before_the_limit",
        1,
        2,
        0,
        &["limit near", "python save.py @0 rank 0", "python save.py @1 rank 1", "step 0"],
    ),
    (
        "container",
        2,
        4,
        0,
        &[
            "apptainer exec --nv --bind /data image.sif python train.py @0 rank 0",
            "apptainer exec --nv --bind /data image.sif python train.py @0 rank 1",
            "apptainer exec --nv --bind /data image.sif python train.py @1 rank 2",
            "apptainer exec --nv --bind /data image.sif python train.py @1 rank 3",
        ],
    ),
    (
        "ddp",
        2,
        4,
        0,
        &[
            "4 processes, first on node-0",
            "python train.py --epochs 3 @0 rank 0",
            "python train.py --epochs 3 @0 rank 1",
            "python train.py --epochs 3 @1 rank 2",
            "python train.py --epochs 3 @1 rank 3",
        ],
    ),
    (
        "each_node",
        1,
        2,
        0,
        &[
            "python stage.py --node node-0 @0 rank 0",
            "python stage.py --node node-1 @1 rank 0",
            "python train.py @0 rank 0",
            "python train.py @0 rank 1",
            "python train.py @1 rank 2",
            "python train.py @1 rank 3",
        ],
    ),
    ("exit_code", 1, 2, 2, &["python report.py 2 @0"]),
    (
        "fails",
        2,
        4,
        9,
        &[
            "python prepare.py @0",
            "python train.py @0 rank 0",
            "python train.py @0 rank 1",
            "python train.py @1 rank 2",
            "python train.py @1 rank 3",
        ],
    ),
    (
        "gpus_per_task",
        2,
        4,
        0,
        &["0 has 0 and 4 threads", "1 has 1 and 4 threads", "2 has 0 and 4 threads", "3 has 1 and 4 threads"],
    ),
    ("here_document", 1, 2, 0, &["GPU 0 of pod 0", "GPU 0 of pod 1", "checking on 0", "checking on 1"]),
    (
        "hostfile",
        2,
        4,
        0,
        &[
            "node-0 slots=2",
            "node-1 slots=2",
            "python -u train.py --deepspeed --deepspeed_config zero3.json @0 rank 0",
            "python -u train.py --deepspeed --deepspeed_config zero3.json @0 rank 1",
            "python -u train.py --deepspeed --deepspeed_config zero3.json @1 rank 2",
            "python -u train.py --deepspeed --deepspeed_config zero3.json @1 rank 3",
        ],
    ),
    (
        "jax",
        2,
        4,
        0,
        &[
            "2 0 --xla_gpu_autotune_level=0 false",
            "2 0 --xla_gpu_autotune_level=0 false",
            "2 1 --xla_gpu_autotune_level=0 false",
            "2 1 --xla_gpu_autotune_level=0 false",
            "conda activate jax @0",
            "python jax_train.py @0 rank 0",
            "python jax_train.py @0 rank 1",
            "python jax_train.py @1 rank 2",
            "python jax_train.py @1 rank 3",
        ],
    ),
    (
        "logs",
        2,
        4,
        0,
        &[
            "0: python train.py @0 rank 0",
            "1: python train.py @0 rank 1",
            "2: python train.py @1 rank 2",
            "3: python train.py @1 rank 3",
        ],
    ),
    ("mpirun", 2, 4, 0, &["orted 4 ./all_reduce_perf @0 rank 0", "orted 4 ./all_reduce_perf @1 rank 1"]),
    (
        "node_rank",
        2,
        4,
        0,
        &[
            "torchrun --nnodes=2 --node_rank=0 --nproc_per_node=2 train.py @0 rank 0",
            "torchrun --nnodes=2 --node_rank=1 --nproc_per_node=2 train.py @1 rank 1",
        ],
    ),
    (
        "prepare",
        2,
        4,
        0,
        &[
            "done",
            "python evaluate.py @0 rank 0",
            "python prepare.py @0",
            "python train.py --data 1 @0 rank 0",
            "python train.py --data 1 @0 rank 1",
            "python train.py --data 1 @1 rank 2",
            "python train.py --data 1 @1 rank 3",
        ],
    ),
    (
        "ray",
        1,
        2,
        0,
        &[
            "python -u tune.py --address 10.0.0.0:6379 @0",
            "ray start --address 10.0.0.0:6379 --block @1 rank 0",
            "ray start --head --node-ip-address=10.0.0.0 --port=6379 --block @0 rank 0",
        ],
    ),
    ("sweep", 2, 2, 0, &["python sweep.py --lr 0.01 @0 rank 0", "python sweep.py --lr 0.1 @0 rank 0"]),
    (
        "torchrun",
        1,
        2,
        0,
        &[
            "head node-0 of 2",
            "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id 4711 --rdzv_backend c10d --rdzv_endpoint node-0:29500 train.py @0 rank 0",
            "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id 4711 --rdzv_backend c10d --rdzv_endpoint node-0:29500 train.py @1 rank 1",
        ],
    ),
    (
        "wrapper",
        2,
        4,
        0,
        &[
            "python train.py --device 0 @0 rank 0",
            "python train.py --device 0 @1 rank 2",
            "python train.py --device 1 @0 rank 1",
            "python train.py --device 1 @1 rank 3",
        ],
    ),
];

const STUB: &str = "#!/bin/bash\necho \"${0##*/} $* @$POD${RANK:+ rank $RANK}\"\n";

#[test]
fn scripts_run_as_slurm_runs_them() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), TABLE.len(), "each script has a row");
    for (name, tasks_per_node, tasks, code, lines) in TABLE {
        let job = Job::new(2, tasks_per_node)
            .with("GPU_RUN_TASKS", &tasks.to_string())
            .with("GPU_RUN_CPUS_PER_TASK", "4")
            .with("SLURM_GPUS_ON_NODE", "2")
            .with("SLURM_ARRAY_TASK_ID", "2");
        for program in ["python", "torchrun", "accelerate", "ray", "apptainer"] {
            job.program(program, STUB);
        }
        job.program("hostname", "#!/bin/bash\necho 10.0.0.$POD\n");
        job.program("nvidia-smi", "#!/bin/bash\necho \"GPU 0 of pod $POD\"\n");
        job.program("conda", "#!/bin/bash\n[ $1 = activate ] && echo \"conda $* @$POD\"; true\n");
        job.program("orted", "#!/bin/bash\necho \"orted $MPI_RANKS @$POD rank $RANK\"\n");
        // As Open MPI starts its daemons under Slurm (prte's plm/slurm).
        job.program(
            "mpirun",
            "#!/bin/bash\nexport MPI_RANKS=\"$2 $5\"\nexec srun --ntasks-per-node=1 --kill-on-bad-exit --mpi=none \
             --cpu-bind=none --nodes=$SLURM_NNODES --nodelist=$SLURM_JOB_NODELIST --ntasks=$SLURM_NNODES orted\n",
        );
        let script = format!("{folder}/{name}.sh");
        let others = job.others();
        let mut said = job.host(0, &["bash", &script]).wait();
        for other in others {
            assert_eq!(other.wait().code, others_code(said.code), "{name}");
        }
        for (number, host) in job.names().iter().enumerate() {
            said.out = said.out.replace(host, &format!("node-{number}"));
        }
        assert_eq!((said.code, said.lines().as_slice()), (code, lines), "{name}: {}", said.err);
    }
}
