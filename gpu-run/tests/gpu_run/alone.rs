//! One pod, or none: no connections, no key.

use std::process::{Command, Stdio};

use crate::job::Said;

fn srun(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-run"));
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    Said::of(&command.arg("srun").args(arguments).output().unwrap())
}

#[test]
fn srun_works_without_pods() {
    let said = srun(&["-n", "2", "-K=0", "-l", "sh", "-c", "echo $RANK of $WORLD_SIZE; exit $RANK"]);
    assert_eq!((said.code, said.lines()), (1, vec!["0: 0 of 2", "1: 1 of 2"]), "{}", said.err);
    let said = srun(&["--export=ALL", "sh", "-c", "echo $SLURM_NNODES $SLURM_NODEID"]);
    assert_eq!((said.code, said.out.as_str()), (0, "1 0\n"), "{}", said.err);
    assert_eq!(srun(&["sh", "-c", "kill -TERM $$"]).code, 143);
}

#[test]
fn one_pod_needs_no_key() {
    let host = |script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-run"));
        let program = env!("CARGO_BIN_EXE_gpu-run");
        command.env_clear().env("PATH", "/usr/bin:/bin").env("GPU_RUN", program).env("GPU_RUN_TASKS", "2");
        command.env("GPU_RUN_ARRAY_TASKS", "5,7").env("GPU_RUN_INDEX", "0").env("JOB_COMPLETION_INDEX", "1");
        command.env("SLURM_GPUS_ON_NODE", "2");
        Said::of(&command.args(["host", "--", "bash", "-c", script]).stdin(Stdio::null()).output().unwrap())
    };
    let said = host(
        "X=1 $GPU_RUN srun bash -c 'echo $SLURM_PROCID$X'; X=1 $GPU_RUN srun -n1 --export=NONE bash -c 'echo ${X-gone}'; exit 9",
    );
    assert_eq!((said.code, said.lines()), (9, vec!["01", "11", "gone"]), "{}", said.err);
    assert_eq!(host("trap 'exit 5' TERM; kill -TERM $GPU_RUN_HOST_PROCESS; sleep 5 & wait").code, 5);
    let said = host(
        "export d=$(mktemp -d)
         for i in 1 2; do
           $GPU_RUN srun -n1 --gpus-per-task=1 bash -c 'echo $CUDA_VISIBLE_DEVICES; touch $d/$CUDA_VISIBLE_DEVICES
             for ((i = 0; i < 300; i++)); do [ -e $d/0 ] && [ -e $d/1 ] && break; sleep 0.1; done' &
         done
         wait; rm -r $d",
    );
    assert_eq!(said.lines(), ["0", "1"], "{}", said.err);
    let said = host("echo $SLURM_ARRAY_TASK_ID; $GPU_RUN srun -n1 bash -c 'echo $SLURM_ARRAY_TASK_ID'");
    assert_eq!(said.out, "7\n7\n", "{}", said.err);
    assert_eq!(host("exec no-such-program").code, 127);
}
