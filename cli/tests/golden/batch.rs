//! `kubectl gpu run`: the objects that it makes, and what it says of mistakes.

use crate::program::{golden_in, run, run_in};

fn golden(name: &str, arguments: &[&str]) {
    golden_in("run", name, &[&["run"], arguments].concat(), "");
}

#[test]
fn objects() {
    golden("run-script", &["-o", "yaml", "train.sh", "--epochs", "90"]);
    golden(
        "run-command",
        &["--nodes=2", "--gres=gpu:4", "-A", "vision", "-o", "yaml", "--image=i", "--", "a", "-b"],
    );
    golden("run-array-json", &["-o", "json", "--image=i", "sweep.sh"]);
    golden(
        "run-defaults",
        &["--defaults", "defaults.yaml", "--mount=/home/me:/work", "-o", "yaml", "--wrap=nvidia-smi"],
    );
}

#[test]
fn mistakes() {
    golden("run-unknown", &["-o", "yaml", "mistaken.sh"]);
    golden("run-refused", &["-o", "yaml", "chained.sh"]);
    golden("run-no-image", &["-o", "yaml", "sweep.sh"]);
    golden("run-no-script", &["-o", "yaml", "no-such.sh"]);
    golden("run-nothing", &["-o", "yaml"]);
    // Said before a cluster is asked.
    golden("run-nothing-for-the-cluster", &[]);
    golden("run-no-option", &["--nods=2", "train.sh"]);
}

/// By Slurm's variable, which srun in the pods reads.
#[test]
fn the_distribution_of_tasks_is_block_or_cyclic() {
    let made = |option: &str| {
        let output = run(&["run", "-N2", option, "--image=i", "-o", "yaml", "--", "a"], "");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let words = made("-mcyclic:block").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("name: SLURM_DISTRIBUTION value: cyclic"), "{words}");
    assert!(made("--distribution=plane=2").contains("block and cyclic are possible"));
    assert!(made("--pty").contains("kubectl exec --stdin --tty POD"));
}

#[test]
fn scripts_come_by_standard_input() {
    let script = "#!/bin/sh\r\n#SBATCH --image=i -J piped\r\ntrue\r\n";
    let output = run_in("run", &["run", "-o", "yaml", "-", "x"], script);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("name: piped") && !said.contains('\r'), "{said}");
}

/// The selectors are such that kube-scheduler can read them, and the devices exist.
#[test]
fn what_is_claimed_can_be_allocated() {
    for (gres, device) in [
        ("gpu:h100:1", "gpu-"),
        ("gpu:nvidia_h100_80gb_hbm3:1", "gpu-"),
        ("gpu:h100_1g.10gb:1", "-mig-1g10gb-"),
        ("shard:1", "-mps"),
    ] {
        let made = run(&["run", "--gres", gres, "--image=i", "-J", "tries", "-o", "yaml", "--", "a"], "");
        let made = String::from_utf8(made.stdout).unwrap();
        let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: tries}\nspec:\n  containers: [{name: c, image: i, \
                   resources: {claims: [{name: gpu}]}}]\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: \
                   tries}]\n";
        let output =
            run(&["allocate", "pod/tries", "-f", "../advise.yaml", "-f", "-"], &format!("{made}{pod}"));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{gres}: {said}\n{made}");
        assert!(said.contains(device), "{gres}: {said}");
    }
}

/// A selector that the API server finds too complex makes no job at all.
#[test]
fn an_api_server_takes_the_selectors_of_jobs() {
    for words in [
        &["--gres=gpu:h100:8"][..],
        &["--gres=gpu:nvidia_h100-80gb-hbm3:2", "-p", "a,b"],
        &["--gres=gpu:h100_3g.40gb:1", "-p", "a"],
        &["--gres=gpu:1", "-C", "h100|nvidia h100"],
        &["--gres=shard:1", "-p", "a"],
    ] {
        let job = run(&[&["run", "-o", "json", "--image=i"], words, &["--", "true"]].concat(), "");
        let list: serde_json::Value = serde_json::from_slice(&job.stdout).unwrap();
        let request = &list["items"][0]["spec"]["spec"]["devices"]["requests"][0]["exactly"];
        let expression = request["selectors"][0]["cel"]["expression"].as_str().unwrap();
        let output = run(&["cel", expression, "-f", "slices.yaml"], "");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(2), "{words:?}: {expression}: {said}");
    }
}
