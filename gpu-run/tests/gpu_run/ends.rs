//! How steps and jobs end.

use std::{fs, net::TcpStream, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::job::{DISRUPTED, Job, eventually};

/// srun(1), `--kill-on-bad-exit`, the default here: the first failure ends the other tasks, on all hosts.
#[test]
fn a_killed_rank_ends_the_step() {
    let job = Job::new(2, 2);
    let others = job.others();
    let first =
        job.host(0, &["bash", "-c", "srun bash -c 'echo $$ > pid-$SLURM_PROCID; exec sleep 4001'; echo $?"]);
    let pid = |task: u32| fs::read_to_string(job.path().join(format!("pid-{task}"))).unwrap_or_default();
    eventually("four tasks", || (0..4).all(|task| pid(task).ends_with('\n')));
    kill(Pid::from_raw(pid(3).trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    let said = first.wait();
    assert_eq!(said.out, "137\n", "{}", said.err);
    assert!(said.err.contains("task 3: ended by SIGKILL"), "{}", said.err);
    assert!(!job.runs("4001"), "tasks were left");
    assert!(others.into_iter().all(|other| other.wait().code == 0));
}

/// The rest may run on: `-K=0`; or for some time: `-W`.
#[test]
fn other_tasks_may_run_on() {
    let job = Job::new(2, 1);
    let said = job.run("srun -K=0 bash -c 'test $POD = 0 && exit 3; sleep 0.5; echo done'; echo $?");
    assert_eq!(said.out, "done\n3\n", "{}", said.err);
    let said = job.run("srun -W 1 bash -c 'test $POD = 0 || exec sleep 4002'; echo $?");
    assert_eq!(said.out, "1\n", "{}", said.err);
    assert!(said.err.contains("the first task ended 1 s ago"), "{}", said.err);
}

/// A task that takes no SIGTERM gets SIGKILL.
#[test]
fn tasks_that_do_not_end_are_killed() {
    let job = Job::new(2, 1).with("GPU_RUN_KILL_WAIT", "1");
    let said = job.run(
        "srun bash -c 'test $POD = 0 && exit 3; trap \"\" TERM; while true; do sleep 0.1; done'; echo $?",
    );
    assert_eq!(said.out, "3\n", "{}", said.err);
}

/// What ends a pod reaches the script, and by srun all tasks: time to save.
#[test]
fn a_pods_end_reaches_all_tasks() {
    let job = Job::new(2, 1);
    let others = job.others();
    let first = job.host(
        0,
        &["bash", "-c", "srun bash -c 'trap \"sleep 0.3; echo saved > saved-$POD; exit 0\" TERM; touch up-$POD; while true; do sleep 0.1; done'; echo after"],
    );
    let there = |name: &str| job.path().join(name).exists();
    eventually("two tasks", || there("up-0") && there("up-1"));
    first.signal(Signal::SIGTERM);
    let said = first.wait();
    assert_eq!(said.code, 143, "{}", said.err);
    assert!(there("saved-0") && there("saved-1"), "{}", said.err);
    assert!(others.into_iter().all(|other| other.wait().code == DISRUPTED));
}

/// A script that saves and is content: the pod ends half way all the same, and the Job makes all pods anew.
#[test]
fn an_evicted_script_is_no_success() {
    for hosts in [1, 2] {
        let job = Job::new(hosts, 1);
        let others = job.others();
        let script = "trap 'wait; exit 0' TERM; srun bash -c 'touch up-$POD; exec sleep 300' & wait";
        let first = job.host(0, &["bash", "-c", script]);
        eventually("tasks", || (0..hosts).all(|pod| job.path().join(format!("up-{pod}")).exists()));
        first.signal(Signal::SIGTERM);
        let said = first.wait();
        assert_eq!(said.code, 143, "{}", said.err);
        assert!(others.into_iter().all(|other| other.wait().code == DISRUPTED));
    }
}

/// The evicted pod is the cause; the script fails by it, and so none of the others counts as failed.
#[test]
fn the_eviction_of_another_pod_is_no_failure() {
    let job = Job::new(3, 1);
    let first = job.host(0, &["bash", "-c", "srun bash -c 'touch up-$POD; exec sleep 300'"]);
    eventually("the first host", || TcpStream::connect(("127.0.0.1", job.ports[0])).is_ok());
    let mut others = job.others();
    eventually("tasks", || (0..3).all(|pod| job.path().join(format!("up-{pod}")).exists()));
    let evicted = others.remove(0);
    evicted.signal(Signal::SIGTERM);
    assert_eq!(evicted.wait().code, 143);
    let said = first.wait();
    assert_eq!(said.code, DISRUPTED, "{}", said.err);
    assert_eq!(others.remove(0).wait().code, DISRUPTED);
    // A script's own code of this number would be ignored for ever.
    assert_eq!(Job::new(2, 1).run("exit 213").code, 1);
}

/// A pod that waits for the first one tries again after a pause. The first one's steps come sooner, and wait until the first knows
/// whom it may lose.
#[test]
fn a_pod_takes_no_step_before_the_first_knows_it() {
    let job = Job::new(2, 1);
    let evicted = job.host(1, &["false"]);
    // It tries after 3.15, 5.15 and 7.15 s.
    thread::sleep(Duration::from_millis(5500));
    let first = job.host(0, &["bash", "-c", "srun bash -c 'touch up-$POD; exec sleep 300'"]);
    eventually("a task", || job.path().join("up-1").exists());
    evicted.signal(Signal::SIGTERM);
    assert_eq!(evicted.wait().code, 143);
    let said = first.wait();
    assert_eq!(said.code, DISRUPTED, "{}", said.err);
}

/// kill -USR1 to srun, as for checkpoints before the time limit.
#[test]
fn signals_to_srun_reach_tasks() {
    let job = Job::new(2, 1);
    let said = job.run(
        "srun bash -c 'trap \"echo usr1 $POD; exit 0\" USR1; touch up-$POD; while true; do sleep 0.1; done' & srun=$!
         until [ -e up-0 ] && [ -e up-1 ]; do sleep 0.1; done
         kill -USR1 $srun; wait $srun; echo $?",
    );
    assert_eq!(said.lines(), ["0", "usr1 0", "usr1 1"], "{}", said.err);
}

/// An srun that is killed leaves no tasks.
#[test]
fn tasks_end_with_srun() {
    let job = Job::new(2, 1);
    let others = job.others();
    let first = job.host(
        0,
        &[
            "bash",
            "-c",
            "srun bash -c 'touch up-$POD; exec sleep 4003' & srun=$!
          until [ -e up-0 ] && [ -e up-1 ]; do sleep 0.1; done
          kill -KILL $srun; wait $srun; echo $?
          until [ -e gone ]; do sleep 0.1; done",
        ],
    );
    let there = |name: &str| job.path().join(name).exists();
    eventually("two tasks", || there("up-0") && there("up-1"));
    eventually("no task is left", || !job.runs("4003"));
    fs::write(job.path().join("gone"), "").unwrap();
    assert_eq!(first.wait().out, "137\n");
    assert!(others.into_iter().all(|other| other.wait().code == 0));
}

/// What a script leaves in the background ends with it.
#[test]
fn steps_end_with_the_script() {
    let job = Job::new(2, 1);
    let said = job.run(
        "srun bash -c 'touch up-$POD; exec sleep 4004' &
         until [ -e up-0 ] && [ -e up-1 ]; do sleep 0.1; done
         exit 6",
    );
    assert_eq!(said.code, 6, "{}", said.err);
    eventually("no task is left", || !job.runs("4004"));
}

/// Processes whose parents ended are reaped, as a pod's first process has to.
#[test]
fn orphans_are_reaped() {
    let job = Job::new(1, 1);
    let said = job.run(
        "(setsid sleep 0.2 &)
         sleep 0.6
         for status in /proc/[0-9]*/status; do
           grep -sq \"^PPid:.$GPU_RUN_HOST_PROCESS\\$\" $status && grep -s '^State:.Z' $status
         done; echo end",
    );
    assert_eq!(said.out, "end\n", "{}", said.err);
}

/// A host that is lost ends the step, not the script.
#[test]
fn a_lost_host_ends_the_step() {
    let job = Job::new(2, 1);
    let mut others = job.others();
    let first = job.host(0, &["bash", "-c", "srun bash -c 'touch up-$POD; exec sleep 4005'; echo $?"]);
    let there = |name: &str| job.path().join(name).exists();
    eventually("two tasks", || there("up-0") && there("up-1"));
    let other = others.remove(0);
    other.signal(Signal::SIGKILL);
    let said = first.wait();
    assert_eq!(said.out, "1\n", "{}", said.err);
    assert!(said.err.contains("is lost with 1 tasks"), "{}", said.err);
}

/// Without the host that runs the job, the others fail.
#[test]
fn hosts_fail_when_the_first_is_lost() {
    let job = Job::new(3, 1);
    let first = job.host(0, &["bash", "-c", "srun bash -c 'touch up-$POD; exec sleep 300'"]);
    eventually("the first host", || TcpStream::connect(("127.0.0.1", job.ports[0])).is_ok());
    let others = job.others();
    let there = |name: &str| job.path().join(name).exists();
    eventually("a step", || there("up-1") && there("up-2"));
    first.signal(Signal::SIGKILL);
    for other in others {
        let said = other.wait();
        assert_eq!(said.code, DISRUPTED);
        assert!(said.err.contains("which runs the job, is lost"), "{}", said.err);
    }
}

/// Pods start at different times: srun waits, and so does the job's end.
#[test]
fn hosts_that_come_late_are_waited_for() {
    let job = Job::new(2, 1);
    let script = "srun bash -c 'echo $POD' 2> said; code=$?; cat said >&2; exit $code";
    let first = job.host(0, &["bash", "-c", script]);
    let said = || fs::read_to_string(job.path().join("said")).unwrap_or_default();
    eventually("a word", || said().contains("waiting for host"));
    let others = job.others();
    let said = first.wait();
    assert_eq!((said.code, said.lines()), (0, vec!["0", "1"]), "{}", said.err);
    assert!(others.into_iter().all(|other| other.wait().code == 0));
    // A script that is done before the others are there.
    let first = job.host(0, &["bash", "-c", "exit 3"]);
    thread::sleep(Duration::from_millis(500));
    let others = job.others();
    assert_eq!(first.wait().code, 3);
    assert!(others.into_iter().all(|other| other.wait().code == DISRUPTED));
}

/// A host that never comes: nothing is started, and everybody ends.
#[test]
fn a_host_that_never_comes_fails_the_step() {
    let job = Job::new(3, 1).with("GPU_RUN_WAIT", "10");
    let there = job.host(1, &["false"]);
    let said = job.host(0, &["bash", "-c", "srun touch started; echo $?"]).wait();
    assert_eq!(said.out, "1\n");
    assert!(said.err.contains(&format!("host {} did not come in 10 s", job.names()[2])), "{}", said.err);
    assert!(!job.path().join("started").exists());
    assert_eq!(there.wait().code, 0);
    // Without the first host.
    let job = Job::new(2, 1).with("GPU_RUN_WAIT", "2");
    let said = job.host(1, &["false"]).wait();
    assert_eq!(said.code, DISRUPTED);
    assert!(said.err.contains("did not come in 2 s"), "{}", said.err);
}

/// A pod's SIGTERM ends its own host, too.
#[test]
fn a_host_ends_by_sigterm() {
    let job = Job::new(2, 1);
    let first = job.host(0, &["sleep", "30"]);
    let other = job.host(1, &["false"]);
    thread::sleep(Duration::from_millis(300));
    other.signal(Signal::SIGTERM);
    assert_eq!(other.wait().code, 143);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait().code, 143);
}
