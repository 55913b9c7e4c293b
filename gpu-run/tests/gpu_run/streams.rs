//! Output and input of tasks.

use std::fs;

use crate::job::Job;

/// srun(1), "IO Redirection": output and errors come to srun's own; lines are whole.
#[test]
fn output_comes_line_by_line_to_its_own_stream() {
    let job = Job::new(2, 2);
    let said = job.run("srun bash -c 'for i in {1..500}; do echo $SLURM_PROCID; echo e$SLURM_PROCID >&2; printf $SLURM_PROCID; printf \"\\n\"; done'");
    assert_eq!(said.out.lines().count(), 4000);
    assert!(said.out.lines().all(|line| line.len() == 1));
    assert_eq!(said.err.lines().filter(|line| line.len() == 2 && line.starts_with('e')).count(), 2000);
    let said = job.run("srun -l -n2 printf 'no newline'");
    assert!(["0: no newline1: no newline", "1: no newline0: no newline"].contains(&said.out.as_str()));
}

/// srun(1), `--output`, "FILENAME PATTERN".
#[test]
fn output_goes_to_files() {
    let job = Job::new(2, 1);
    let said = job.run(
        "srun -o both.txt bash -c 'echo $POD; echo e$POD >&2'
         srun -o '%x-%t.out' -e '%x-%t.err' bash -c 'echo $POD; echo e$POD >&2'
         srun -o none -e none echo lost",
    );
    let read = |name: &str| fs::read_to_string(job.path().join(name)).unwrap();
    let both = read("both.txt");
    let mut both: Vec<_> = both.lines().collect();
    both.sort_unstable();
    assert_eq!(both, ["0", "1", "e0", "e1"], "{}", said.err);
    assert_eq!(
        (read("train-1.out"), read("train-0.err"), said.out),
        ("1\n".into(), "e0\n".into(), String::new())
    );
}

/// srun(1), `--input`: all tasks read what srun reads, unless another mode is asked for.
#[test]
fn input_reaches_tasks() {
    let job = Job::new(2, 1);
    let said = job.run(
        "echo text > file
         echo line | srun -l cat
         echo line | srun -l -i 1 cat
         echo line | srun -l -i none cat
         srun -l -i file cat
         head -c 3000000 /dev/zero | srun -l wc -c
         yes | srun -n1 head -n1
         for i in 1 2; do srun -n1 true; done < /dev/null",
    );
    assert_eq!(said.code, 0);
    let expected = ["0: 3000000", "0: line", "0: text", "1: 3000000", "1: line", "1: line", "1: text", "y"];
    assert_eq!(said.lines(), expected, "{}", said.err);
}

/// 100 MB from each of two tasks to a reader that is slow at first: nobody keeps them in memory.
#[test]
fn large_output_is_not_kept() {
    let job = Job::new(2, 1);
    let said = job.run(
        "mkfifo pipe
         srun head -c 100000000 /dev/zero > pipe & srun=$!
         exec 3< pipe
         sleep 1
         head -c 50000000 <&3 > /dev/null
         sed -n 's/VmHWM:\\s*\\([0-9]*\\) kB/\\1/p' /proc/$srun/status
         srun bash -c \"sed -n 's/VmHWM:\\s*\\([0-9]*\\) kB/\\1/p' /proc/\\$GPU_RUN_HOST_PROCESS/status\"
         wc -c <&3; wait $srun",
    );
    assert_eq!(said.code, 0, "{}", said.err);
    let numbers: Vec<u64> = said.out.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let (rest, peaks) = numbers.split_last().unwrap();
    assert_eq!(*rest, 150_000_000);
    assert_eq!(peaks.len(), 3, "{}", said.out);
    assert!(peaks.iter().all(|kib| *kib < 40_000), "KiB: {peaks:?}");
}

/// A reader that ends, as in `srun … | head`: the step ends.
#[test]
fn a_closed_output_ends_the_step() {
    let job = Job::new(2, 1);
    let said = job.run("srun yes | head -n1");
    assert_eq!((said.code, said.out.as_str()), (0, "y\n"));
    assert!(said.err.contains("cannot write output"), "{}", said.err);
}
