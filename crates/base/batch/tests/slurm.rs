//! What sbatch(1) and srun(1) of Slurm 24.05 say about options, as tables.
#![allow(clippy::unwrap_used, missing_docs)]

use clap::{Args as _, FromArgMatches as _};
use tessera_batch::{
    Array, BatchError, CommandLine, Constraint, Defaults, Job, Memory, Mount, Options, Program, Script,
    TimeLimit,
};

/// The command line `kubectl gpu run …`, without script and command.
fn command_line(words: &[&str]) -> CommandLine {
    let command = CommandLine::augment_args(clap::Command::new("run").no_binary_name(true));
    CommandLine::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
}

fn script(lines: &str) -> Script {
    Script::new("train.sh", &format!("#!/bin/bash\n{lines}\nsrun python train.py\n")).unwrap()
}

fn options(words: &[&str], lines: &str) -> Result<(Options, Vec<String>), BatchError> {
    command_line(words).with(Some(&script(lines)))
}

fn job_with_notes(words: &[&str], lines: &str) -> Result<(Job, Vec<String>), BatchError> {
    let (mut options, _) = options(words, lines)?;
    options.image.get_or_insert("image".to_owned());
    let program = Program::Script { script: script(lines), arguments: Vec::new() };
    Job::new(&options, Some(program), &Defaults::default())
}

fn job(words: &[&str]) -> Result<Job, BatchError> {
    Ok(job_with_notes(words, "")?.0)
}

#[test]
fn times() {
    for (text, seconds) in [
        ("90", Some(5_400)),
        ("1:30", Some(120)), // Rounded up to minutes.
        ("0:30", Some(60)),
        ("4:00:00", Some(14_400)),
        ("04:30:30", Some(16_260)),
        ("2-12", Some(216_000)),
        ("2-12:30", Some(217_800)),
        ("1-00:00:00", Some(86_400)),
        ("4-12:15:30", Some(389_760)),
        ("0", None),
        ("UNLIMITED", None),
        ("infinite", None),
    ] {
        assert_eq!(text.parse::<TimeLimit>().unwrap().seconds(), seconds, "{text}");
    }
    for text in ["", "1h", "4:0:0:0", "1-", "-1", "1-2:3:4:5", "+5", "9999999999", "2-12h"] {
        assert!(text.parse::<TimeLimit>().is_err(), "{text}");
    }
}

#[test]
fn memories() {
    for (text, quantity) in [
        ("4000", "4000Mi"),
        ("4000M", "4000Mi"),
        ("64G", "64Gi"),
        ("64GB", "64Gi"),
        ("65536M", "64Gi"),
        ("1T", "1024Gi"),
        ("2048K", "2Mi"),
        ("1k", "1Mi"),
        ("1.5G", ""),
        ("G", ""),
        ("12X", ""),
        ("-1", ""),
        ("9999999999T", ""),
    ] {
        let found = text.parse::<Memory>().map(|memory| memory.to_string()).unwrap_or_default();
        assert_eq!(found, quantity, "{text}");
    }
}

#[test]
fn arrays() {
    for (text, tasks, at_once) in [
        ("0-3", vec![0, 1, 2, 3], None),
        ("1,3,5-7", vec![1, 3, 5, 6, 7], None),
        ("0-15:4", vec![0, 4, 8, 12], None),
        ("0-15%4", (0..16).collect(), Some(4)),
        ("0,6,16-18", vec![0, 6, 16, 17, 18], None),
        ("7", vec![7], None),
        ("5,3,3", vec![3, 5], None),
        ("0-1%0", vec![0, 1], None),
    ] {
        assert_eq!(text.parse::<Array>().unwrap(), Array { tasks, at_once }, "{text}");
    }
    for text in ["", "3-1", "a-b", "1-5:0", "0-20000", "1,,2", "0-4294967295:2", "%4", "5000000"] {
        assert!(text.parse::<Array>().is_err(), "{text}");
    }
}

/// Which GPUs each node gets: `count × device`.
#[test]
fn gpus() {
    for (words, expected) in [
        (&["--gres=gpu:8"][..], "8 card"),
        (&["--gres=gpu"], "1 card"),
        (&["--gres", "gpu:h100:8", "-N4"], "8 card h100"),
        (&["--gres=gpu:H100"], "1 card h100"),
        (&["--gres=gpu:nvidia_a100-sxm4-80gb:2"], "2 card nvidia a100 sxm4 80gb"),
        (&["--gres=gpu:1g.10gb:2"], "2 partition 1g.10gb"),
        (&["--gres=gpu:a100_3g.40gb:1"], "1 partition 3g.40gb a100"),
        (&["--gres=gpu:1g.10gb+me"], "1 partition 1g.10gb+me"),
        (&["--gres=shard"], "1 share"),
        (&["--gres=shard:1"], "1 share"),
        (&["--gres=gpu:a100:1,gpu:h100:2"], "1 card a100, 2 card h100"),
        (&["--gres=none"], ""),
        (&["--gpus=16", "--nodes=2"], "8 card"),
        (&["-G", "h100:2"], "2 card h100"),
        (&["-G2"], "2 card"),
        (&["--gpus-per-node=v100:4"], "4 card v100"),
        (&["--gpus-per-task=2", "--ntasks-per-node=4"], "8 card"),
        (&["--gpus-per-task=1", "-n", "8", "-N", "2"], "4 card"),
        (&["--gres=gpu:8", "--gpus-per-node=h100:8"], "8 card h100"),
    ] {
        let job = job(words).unwrap();
        let found: Vec<String> = job
            .gpus
            .iter()
            .map(|amount| {
                let device = match &amount.device {
                    tessera_batch::Device::Card { model } => format!("card {}", model.join(" ")),
                    tessera_batch::Device::Partition { profile, model } => {
                        format!("partition {profile} {}", model.join(" "))
                    }
                    tessera_batch::Device::Share => "share".to_owned(),
                };
                format!("{} {}", amount.count, device.trim())
            })
            .collect();
        assert_eq!(found.join(", "), expected, "{words:?}");
    }
    for (words, said) in [
        (&["--gpus=7", "--nodes=2"][..], "--gpus cannot be divided evenly among 2 nodes"),
        (&["--gres=gpu:4", "--gpus-per-node=8"], "--gres and --gpus-per-node give different numbers of GPUs"),
        (&["--gres=gpu:64"], "64 GPUs of one node: 32 are the most of a claim"),
        (&["--cpus-per-gpu=4"], "--cpus-per-gpu and --mem-per-gpu need a number of GPUs"),
    ] {
        assert_eq!(job(words).unwrap_err().to_string(), said, "{words:?}");
    }
    for text in
        ["nic:1", "gpu:a:b:1", "shard:2", "gpu:x\"y:1", "gpu:-1", "gpu:-:1", "mps:50", "gpu:99999999999"]
    {
        assert!(text.parse::<tessera_batch::Gres>().is_err(), "{text}");
    }
}

/// Nodes, tasks, tasks of a node, CPUs and memory of a node.
#[test]
fn layouts() {
    for (words, expected) in [
        (&[][..], (1, 1, 1, None, "")),
        (&["-N4"], (4, 4, 1, None, "")),
        (&["-N", "4", "--ntasks-per-node=8"], (4, 32, 8, None, "")),
        (&["-n", "6"], (1, 6, 6, None, "")),
        (&["-n6", "-N4"], (4, 6, 2, None, "")),
        (&["-n", "16", "--ntasks-per-node", "8"], (2, 16, 8, None, "")),
        (&["-N2-2"], (2, 2, 1, None, "")),
        (&["-N2", "--ntasks-per-node=4", "-c", "6"], (2, 8, 4, Some(24), "")),
        (&["--gres=gpu:8", "--cpus-per-gpu=12", "--mem-per-gpu=100G"], (1, 1, 1, Some(96), "800Gi")),
        (&["-c8", "--mem-per-cpu=4G"], (1, 1, 1, Some(8), "32Gi")),
        (&["--mem=64G", "-N2"], (2, 2, 1, None, "64Gi")),
        (&["--mem=0"], (1, 1, 1, None, "")),
        (&["--gpus=16", "--gpus-per-node=8"], (2, 2, 1, None, "")),
        (&["--gpus=8", "--gpus-per-task=2"], (1, 4, 4, None, "")),
        (&["-N2", "--gres=gpu:8", "--gpus-per-task=1"], (2, 16, 8, None, "")),
    ] {
        let job = job(words).unwrap();
        let memory = job.memory.map(|memory| memory.to_string()).unwrap_or_default();
        let found = (job.nodes, job.tasks, job.tasks_per_node, job.cpus, memory.as_str());
        assert_eq!(found, expected, "{words:?}");
    }
    for words in [
        &["-n", "9", "-N", "2", "--ntasks-per-node=4"][..],
        &["-c4", "--cpus-per-gpu=4", "--gres=gpu:1"],
        &["--mem=1G", "--mem-per-cpu=1G"],
        &["-N2", "-a", "0-3"],
        &["--gres=none", "--gpus-per-task=1", "-n4"],
        &["--gpus=0", "--gpus-per-task=1"],
        &["--gpus=0", "--gpus-per-node=1"],
        &["-G", "4294967295,1"],
        &["--gres=gpu:4294967295", "--gpus-per-task=1", "-N", "4096"],
        &["-n5000", "--ntasks-per-node=1"],
        &["-G", "5000", "--gpus-per-node=1"],
    ] {
        assert!(matches!(job(words), Err(BatchError::Conflict(_))), "{words:?}");
    }
    let read = |words: &[&str]| {
        CommandLine::augment_args(clap::Command::new("run").no_binary_name(true)).try_get_matches_from(words)
    };
    for words in [["-N", "2-4"], ["-N", "0"], ["-n", "0"], ["--nodes", "x"], ["-N", "5000"]] {
        assert!(read(&words).is_err(), "{words:?}");
    }
    let of_habit = read(&["-n", "team-a"]).unwrap_err().to_string();
    assert!(of_habit.contains("-A the namespace"), "{of_habit}");
}

#[test]
fn constraints() {
    let models = |text: &str| {
        let models = text.parse::<Constraint>().unwrap().models;
        models.iter().map(|words| words.join(" ")).collect::<Vec<String>>().join("|")
    };
    assert_eq!(models("h100"), "h100");
    assert_eq!(models("a100|H100"), "a100|h100");
    let both: Constraint = "h100&topology.kubernetes.io/zone=a".parse().unwrap();
    assert_eq!(both.labels["topology.kubernetes.io/zone"], "a");
    for text in ["[rack1|rack2]", "h100*2", "h100&a100", "zone=a|b", "", "h100&"] {
        assert!(text.parse::<Constraint>().is_err(), "{text}");
    }
}

#[test]
fn mounts() {
    let mount = |text: &str| text.parse::<Mount>().map(|mount| (mount.source, mount.path, mount.read_only));
    assert_eq!(mount("data:/data").unwrap(), ("data".into(), "/data".into(), false));
    assert_eq!(mount("/home/me:/home:ro").unwrap(), ("/home/me".into(), "/home".into(), true));
    assert_eq!(mount("/scratch").unwrap(), ("/scratch".into(), "/scratch".into(), false));
    for text in ["", "data", "data:data", "a:/b:rx", "a:/b:ro:x"] {
        assert!(mount(text).is_err(), "{text}");
    }
}

#[test]
fn directives_end_at_the_first_command() {
    let text = "\
        #SBATCH --job-name=\"my job\"  # said beside it\n\
        ##SBATCH --nodes=8\n\
        # SBATCH --nodes=9\n\
        \n\
        #SBATCH -N 2 --ntasks-per-node=4\n\
        echo begin\n\
        #SBATCH --nodes=3\n";
    let (options, notes) = options(&[], text).unwrap();
    assert_eq!(options.job_name.as_deref(), Some("my job"));
    assert_eq!((options.nodes, options.ntasks_per_node), (Some(2), Some(4)));
    assert_eq!(notes, [""; 0]);
}

#[test]
fn scripts_from_windows_are_read() {
    let script = Script::new("a.sh", "#!/bin/bash\r\n#SBATCH --nodes=2\r\necho a\r\n").unwrap();
    assert_eq!(script.text, "#!/bin/bash\n#SBATCH --nodes=2\necho a\n");
    assert_eq!(command_line(&[]).with(Some(&script)).unwrap().0.nodes, Some(2));
    assert_eq!(Script::new("a.sh", "echo a\n"), Err(BatchError::NoInterpreter));
}

#[test]
fn the_command_line_wins() {
    let lines = "#SBATCH --nodes=2\n#SBATCH --no-requeue\n#SBATCH -J a -J b --exclusive";
    let (options, _) = options(&["--nodes=3", "--requeue", "-N4"], lines).unwrap();
    assert_eq!(options.nodes, Some(4), "and the last of several");
    assert!(!options.no_requeue);
    assert_eq!(options.job_name.as_deref(), Some("b"));
    assert!(options.exclusive.is_some(), "a flag of the script stays");
}

#[test]
fn beginnings_of_names_will_do() {
    let (options, _) = options(&[], "#SBATCH --ntasks-per-n=4 --gpus-per-n=2").unwrap();
    assert_eq!(options.ntasks_per_node, Some(4));
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (lines, said) in [
        ("#SBATCH --nodes=2\n\n#SBATCH --nods=2", "line 4: unknown option --nods"),
        ("#SBATCH -Z", "line 2: unknown option -Z"),
        ("#SBATCH --time=1h", "line 2: invalid value '1h' for '--time <TIME>': expected minutes, "),
        ("#SBATCH --time", "line 2: a value is required for '--time <TIME>' but none was supplied"),
        ("#SBATCH -J 'a", "line 2: a quote does not end"),
        ("#SBATCH --dependency=afterok:12", "line 2: --dependency is not possible here: chain jobs with"),
        ("#SBATCH -d singleton", "line 2: --dependency is not possible here"),
        ("#SBATCH --licenses=matlab:2", "line 2: --licenses is not possible here: count licences"),
        ("#SBATCH hetjob", "line 2: hetjob is not possible here: start a job for each part"),
        ("#SBATCH -N2 extra", "line 2: unknown option extra"),
        (
            "#SBATCH --gres=nic:1",
            "line 2: invalid value 'nic:1' for '--gres <LIST>': \"nic\" is not known here",
        ),
        ("#SBATCH --help", "line 2: unknown option --help"),
    ] {
        let found = options(&[], lines).unwrap_err().to_string();
        assert!(found.starts_with(said), "{lines}: {found}");
    }
    let refused = command_line(&["--begin=now+1hour"]).with(None).unwrap_err().to_string();
    assert_eq!(refused, "--begin is not possible here: begin at a time with a CronJob");
}

#[test]
fn options_without_effect_are_said() {
    let lines = "#SBATCH -o logs/%j.out --mail-type=END,FAIL\n#SBATCH --exclusive --gres=gpu:2";
    let (_, notes) = options(&["-v"], lines).unwrap();
    assert_eq!(
        notes,
        [
            "--output: output is in the pods' logs (kubectl logs)",
            "--mail-type: no mail is sent",
            "--verbose: it has no effect here"
        ]
    );
    let (_, notes) = job_with_notes(&[], lines).unwrap();
    assert!(notes[0].starts_with("--exclusive: others may use what is left"), "{notes:?}");
}

#[test]
fn environments() {
    let job = job(&["--export=ALL,SEED=3,DATA=/data"]).unwrap();
    assert_eq!(job.environment, [("SEED", "3"), ("DATA", "/data")].map(|(a, b)| (a.into(), b.into())));
    let (options, _) = options(&["--export=HOME"], "").unwrap();
    let program = Some(Program::Command(vec!["a".to_owned()]));
    let error = Job::new(&options, program, &Defaults::default()).unwrap_err().to_string();
    assert!(error.contains("give HOME=VALUE"), "{error}");
}

#[test]
fn images_and_names() {
    let named = |words: &[&str]| job(words).unwrap();
    assert_eq!(
        named(&["--container-image=nvcr.io#nvidia/pytorch:24.01-py3"]).image,
        "nvcr.io/nvidia/pytorch:24.01-py3"
    );
    assert_eq!(named(&["--image=docker://ubuntu"]).image, "ubuntu");
    assert!(job(&["--image=/images/a.sqsh"]).is_err());
    assert_eq!(named(&[]).name, "train");
    let train = named(&["-J", "2_Train ResNet!"]);
    assert_eq!((train.name.as_str(), train.job_name.as_str()), ("train-resnet", "2_Train ResNet!"));
    assert_eq!(named(&["-J", "99"]).name, "job");
    assert_eq!(named(&["-J", &"a".repeat(80)]).name.len(), 48);
    let (options, _) = options(&[], "").unwrap();
    let program = || Some(Program::Command(vec!["a".to_owned()]));
    assert_eq!(Job::new(&options, program(), &Defaults::default()).unwrap_err(), BatchError::NoImage);
    assert_eq!(Job::new(&options, None, &Defaults::default()).unwrap_err(), BatchError::NoProgram);
}

#[test]
fn defaults_are_read_strictly() {
    let read = |key: &str, value: &str| Defaults::new(&[(key.to_owned(), value.to_owned())].into());
    assert_eq!(read("user", "1000:100").unwrap().user, Some((1000, Some(100))));
    let environment = read("environment", "# proxies\nA=1\n\nB=x=y\n").unwrap().environment;
    assert_eq!(environment, [("A", "1"), ("B", "x=y")].map(|(a, b)| (a.into(), b.into())));
    let volumes =
        read("volumes", "- name: home\n  persistentVolumeClaim: { claimName: home }\n").unwrap().volumes;
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name, "home");
    for (key, value, said) in [
        ("imge", "a", "ConfigMap gpu-run, key data: \"imge\" is unknown"),
        ("user", "me", "ConfigMap gpu-run, key user: \"me\" is no number"),
        ("environment", "A", "ConfigMap gpu-run, key environment: \"A\": expected NAME=VALUE"),
        ("volumes", "{", "ConfigMap gpu-run, key volumes: "),
    ] {
        let found = read(key, value).unwrap_err().to_string();
        assert!(found.starts_with(said), "{found}");
    }
}
