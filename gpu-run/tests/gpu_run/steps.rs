//! Which processes a step has, and what they see.

use crate::job::Job;

/// srun(1): one process for each task, in block distribution.
#[test]
fn a_step_runs_in_all_pods() {
    let job = Job::new(2, 2);
    let said = job
        .run("echo script $POD; srun bash -c 'echo $SLURM_PROCID on $POD of $SLURM_NTASKS'; echo after $POD");
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(
        said.lines(),
        ["0 on 0 of 4", "1 on 0 of 4", "2 on 1 of 4", "3 on 1 of 4", "after 0", "script 0"]
    );
    assert!(said.out.starts_with("script 0\n") && said.out.ends_with("after 0\n"), "{}", said.out);
}

/// srun(1), `--distribution`; of the job, by sbatch's variable, and of the step.
#[test]
fn tasks_are_counted_round_by_round() {
    let job = Job::new(2, 2).with("SLURM_DISTRIBUTION", "cyclic");
    let said = job.run(
        "srun -l bash -c 'echo on $POD' < /dev/null; srun -m block bash -c 'echo $SLURM_PROCID on $POD'",
    );
    assert_eq!(
        said.lines(),
        ["0 on 0", "0: on 0", "1 on 0", "1: on 1", "2 on 1", "2: on 0", "3 on 1", "3: on 1"],
        "{}",
        said.err
    );
}

/// srun(1), "OUTPUT ENVIRONMENT VARIABLES"; torch.distributed's and torchrun's.
#[test]
fn tasks_know_their_places() {
    let job = Job::new(2, 2).with("SLURM_GPUS_ON_NODE", "4").with("GPU_RUN_CPUS_PER_TASK", "8");
    let names = [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "SLURM_JOB_NAME",
        "SLURM_NNODES",
        "SLURM_NODEID",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_GPUS_ON_NODE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_TASKS_PER_NODE",
        "HOSTNAME",
    ];
    let values = names.map(|name| format!("${name}")).join(" ");
    let said = job.run(&format!("srun bash -c 'echo {values}'"));
    assert_eq!(
        said.lines(),
        [
            "0 4 0 2 127.0.0.1 29500 2 0 2 127.0.0.1 29500 4711 4711 train 2 0 4 0 0 4 8 2(x2) pod-0",
            "1 4 1 2 127.0.0.1 29500 2 0 2 127.0.0.1 29500 4711 4711 train 2 0 4 1 1 4 8 2(x2) pod-0",
            "2 4 0 2 127.0.0.1 29500 2 1 2 127.0.0.1 29500 4711 4711 train 2 1 4 2 0 4 8 2(x2) pod-1",
            "3 4 1 2 127.0.0.1 29500 2 1 2 127.0.0.1 29500 4711 4711 train 2 1 4 3 1 4 8 2(x2) pod-1",
        ]
    );
    let said = job
        .run("srun -N1 bash -c 'echo $SLURM_JOB_NODELIST $SLURM_STEP_NODELIST $SLURMD_NODENAME' | sort -u");
    let hosts = job.names();
    assert_eq!(said.out.trim(), format!("{0},{1} {0} {0}", hosts[0], hosts[1]));
}

/// sbatch(1): the script runs once, on the first node, with the job's variables.
#[test]
fn the_script_knows_the_job() {
    let job = Job::new(2, 2).with("GPU_RUN_TASKS", "3");
    let said = job.run("echo $SLURM_NNODES $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_NODEID $MASTER_ADDR:$MASTER_PORT ${RANK-none}; scontrol show hostnames; scontrol show job | head -1");
    let hosts = job.names().join("\n");
    assert_eq!(said.out, format!("2 3 2,1 0 127.0.0.1:29500 none\n{hosts}\nJobId=4711 JobName=train\n"));
}

/// srun(1), `-n`, `-N`, `--ntasks-per-node`, `-w`, `-r`, `-l`, `-D`.
#[test]
fn options_choose_pods_and_tasks() {
    let job = Job::new(2, 2);
    let hosts = job.names();
    let echo = "bash -c 'echo $POD:$SLURM_PROCID'";
    let only = format!("-N1 -n1 -w {}", hosts[1]);
    let without = format!("--exclude={}", hosts[0]);
    let table = [
        ("-n1", "0:0"),
        ("-n 2", "0:0 1:1"),
        ("-n 3", "0:0 0:1 1:2"),
        ("-N1", "0:0 0:1"),
        ("-N 1 -n 1", "0:0"),
        ("--ntasks-per-node=1", "0:0 1:1"),
        ("--nodes=1 --ntasks=1 -r1", "1:0"),
        (only.as_str(), "1:0"),
        (without.as_str(), "1:0 1:1"),
        ("-l -n2", "0: 0:0 1: 1:1"),
        ("--mpi=pmix --cpu-bind=none --gres=gpu:1 -n1", "0:0"),
    ];
    let script = table.iter().map(|(options, _)| format!("echo $(srun {options} {echo} | sort)\n"));
    let said = job.run(&script.collect::<String>());
    assert_eq!(said.out.lines().collect::<Vec<_>>(), table.map(|(_, expected)| expected), "{}", said.err);
    let said = job.run("srun -n1 -D /usr pwd; cd bin; srun -n1 pwd");
    assert_eq!(said.out, format!("/usr\n{}/bin\n", job.path().display()));
}

/// srun(1), "RETURN VALUE": the highest exit code, 128 and the signal. A command that cannot be run: the error's number.
#[test]
fn exit_codes_are_the_tasks() {
    let job = Job::new(2, 1);
    let table = [
        ("srun true", 0),
        ("srun bash -c 'exit $((SLURM_PROCID * 3))'", 3),
        ("srun -K=0 bash -c 'exit $((4 - SLURM_PROCID))'", 4),
        ("srun bash -c 'kill -9 $$'", 137),
        ("srun no-such-program", 2),
        ("srun /etc/passwd", 13),
        ("srun -N 3 true", 1),
        ("srun --pty bash", 2),
        ("srun --no-such-option true", 2),
        ("scontrol update job", 1),
        ("module load cuda/12.4", 0),
    ];
    let script = table.iter().map(|(line, _)| format!("{line}; echo $?\n"));
    let said = job.run(&script.collect::<String>());
    let codes: Vec<_> = said.out.lines().map(|line| line.parse::<i32>().unwrap()).collect();
    assert_eq!(codes, table.map(|(_, code)| code), "{}", said.err);
    for words in [
        "task 1: Exited with exit code 3",
        "cannot run no-such-program",
        "3 nodes were asked for, and 2 can be had",
        "kubectl exec",
        "only `scontrol show hostnames",
        "module: the software is in the pod's image",
    ] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    // The job's exit code is the script's.
    assert_eq!(job.run("exit 7").code, 7);
    assert_eq!(job.run("kill -KILL $$").code, 137);
    assert_eq!(job.run("srun bash -c 'exit 5'").code, 5);
}

/// srun(1), `--export`; what is another pod's own stays.
#[test]
fn what_the_script_sets_travels() {
    let job = Job::new(2, 1).with("REMOVED", "1");
    let said = job.run(
        "export DATA='two words' POD_OF_SCRIPT=$POD; unset REMOVED; umlaut=$'\\xe4'; export umlaut
         srun -r1 -N1 bash -c 'echo $DATA,$POD_OF_SCRIPT,$POD,$HOSTNAME,${REMOVED-gone},${#umlaut}'
         srun -r1 -N1 --export=NONE bash -c 'echo ${DATA-gone},$POD,${REMOVED-gone},$SLURM_JOB_ID'
         srun -r1 -N1 --export=DATA,MORE=1 bash -c 'echo $DATA,$MORE,${POD_OF_SCRIPT-gone}'
         MASTER_PORT=1234 srun -r1 -N1 bash -c 'echo $MASTER_PORT,$PET_MASTER_PORT'",
    );
    assert_eq!(
        said.out, "two words,0,1,pod-1,gone,1\ngone,1,1,4711\ntwo words,1,gone\n1234,1234\n",
        "{}",
        said.err
    );
}

/// srun(1), `--gpus-per-task`.
#[test]
fn tasks_have_gpus_of_their_own() {
    let job = Job::new(2, 2);
    let said = job.run("srun --gpus-per-task=2 bash -c 'echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES'; srun -n1 bash -c 'echo ${CUDA_VISIBLE_DEVICES-all}'");
    assert_eq!(said.lines(), ["0:0,1", "1:2,3", "2:0,1", "3:2,3", "all"]);
    job.program("nvidia-smi", "#!/bin/sh\necho 'GPU 0: H100 (UUID: GPU-1)'\nfor i in 1 2; do echo \"  MIG 1g.10gb Device $i: (UUID: MIG-$POD$i)\"; done\n");
    let said = job.run("srun --gpus-per-task=1 bash -c 'echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES'");
    assert_eq!(said.lines(), ["0:MIG-01", "1:MIG-02", "2:MIG-11", "3:MIG-12"]);
}

/// A mistyped number is refused, also where a pod's number of GPUs is unknown.
#[test]
fn no_task_has_thousands_of_gpus() {
    let job = Job::new(1, 2);
    let said = job.run("srun --gpus-per-task=4294967295 true; echo $?");
    assert_eq!(said.out, "1\n", "{}", said.err);
    assert!(said.err.contains("more than a node's 1024"), "{}", said.err);
}

/// As in searches for parameters: steps at once have different GPUs.
#[test]
fn steps_at_once_have_gpus_of_their_own() {
    let job = Job::new(1, 1).with("SLURM_GPUS_ON_NODE", "4");
    let said = job.run(
        "for i in 1 2 3 4; do
           srun -n1 --gpus-per-task=1 bash -c 'echo $CUDA_VISIBLE_DEVICES; touch up-$CUDA_VISIBLE_DEVICES; until [ -e done ]; do sleep 0.1; done' &
         done
         until [ -e up-0 ] && [ -e up-1 ] && [ -e up-2 ] && [ -e up-3 ]; do sleep 0.1; done
         touch done; wait
         srun -n1 --gpus-per-task=5 true; echo $?",
    );
    assert_eq!(said.lines(), ["0", "1", "1", "2", "3"], "{}", said.err);
    assert!(said.err.contains("more than a node's 4"), "{}", said.err);
}

/// Slurm: a directory that a node does not have becomes /tmp.
#[test]
fn a_directory_of_one_pod_alone_is_said() {
    let job = Job::new(2, 1);
    let said = job.run("mkdir own; cd own; rmdir ../own; srun -r1 -N1 pwd");
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("the current directory does not exist"), "{}", said.err);
    let said = job.run("srun -D /no/such/place pwd");
    assert_eq!(said.out, "/tmp\n/tmp\n");
    assert!(said.err.contains("no directory /no/such/place"), "{}", said.err);
}

/// As people write it: data are prepared once, then all pods train.
#[test]
fn data_are_prepared_before_the_step() {
    let job = Job::new(2, 2);
    let said = job.run(
        "set -e; mkdir data; echo $POD > data/prepared; srun bash -c 'cat data/prepared'; srun -n1 ls data",
    );
    assert_eq!((said.code, said.out.as_str()), (0, "0\n0\n0\n0\nprepared\n"), "{}", said.err);
}

/// Steps in the background run at the same time, each with its own exit code.
#[test]
fn two_steps_run_at_once() {
    let job = Job::new(2, 1);
    let said = job.run(
        "mkfifo one two
         srun -N1 -n1 bash -c 'echo > one; cat two; exit 4' & a=$!
         srun -N1 -n1 -r1 bash -c 'cat one; echo > two; echo $POD' & b=$!
         wait $a; echo $?; wait $b; echo $?",
    );
    assert_eq!(said.lines(), ["", "", "0", "1", "4"], "{}", said.err);
}
