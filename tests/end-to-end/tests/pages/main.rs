//! The code of README, docs/start.md, docs/trying.md and docs/installing.md, typed as it stands there, on the cluster of
//! `cargo xtask demo --keep`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests have no #[test]")]

mod blocks;
mod exceptions;
mod shell;

use std::fs;

use tessera_harness::{Cluster, host::CommandLine, installation::NAMESPACE, skip, workspace};

use blocks::{Code, of_page};
use exceptions::{EXCEPTIONS, Exception};
use shell::{LIMIT, Shell};

/// Starts the cluster, and ends it.
const START: &str = "docs/start.md";
/// Begin with a cluster that has the images and no Tessera.
const OTHERS: [&str; 3] = ["README.md", "docs/trying.md", "docs/installing.md"];

/// Makes the cluster as a user's own: without what the demo has installed, and with the images as `cargo xtask image` names them.
async fn as_a_users_own(cluster: &Cluster) {
    cluster.kubectl(&["delete", "namespace", "demo"]).await.unwrap();
    cluster.helm(&["uninstall", "tessera", "--namespace", NAMESPACE, "--wait"]).await.unwrap();
    let kinds = ["gpupools.gpu.tessera.dev", "gpuquotas.gpu.tessera.dev"];
    cluster.kubectl(&["delete", "crd", kinds[0], kinds[1]]).await.unwrap();
    let ctr = cluster.program("ctr").unwrap();
    for program in ["kubelet-plugin", "mps-host", "controller", "gpu-emulator"] {
        let demo = format!("tessera.test/{program}:v1");
        let users = format!("docker.io/tessera/{program}:{}", env!("CARGO_PKG_VERSION"));
        let tag = CommandLine::new(&ctr).arguments(["-n", "k8s.io", "images", "tag", &demo, &users]);
        let output = cluster.node(0).host().run(tag, None, LIMIT).await.unwrap();
        assert!(output.success(), "{}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_of_the_first_pages_works_as_typed() {
    if !skip::node_tier("the_code_of_the_first_pages_works_as_typed") {
        return;
    }
    let packages = [&workspace::TESTED_AND_CLI[..], &["tessera-tasks"]].concat();
    let shell = Shell::new(&workspace::build_packages(&packages).unwrap());
    let start = of_page(START);
    let (end, look) = start.split_last().unwrap();
    for block in look {
        shell.run(block).await;
    }
    let cluster = Cluster::attach(&shell.cluster()).await.unwrap();
    as_a_users_own(&cluster).await;
    for block in OTHERS.into_iter().flat_map(of_page) {
        shell.run(&block).await;
    }
    shell.run(end).await;
    assert!(!cluster.state().exists(), "{} is left", cluster.state().display());
}

#[test]
fn each_exception_is_of_one_command() {
    for Exception { page, beginning, reason, .. } in &EXCEPTIONS {
        let commands = of_page(page).into_iter().flat_map(|block| match block.code {
            Code::Commands(commands) => commands,
            Code::Manifests(_) => Vec::new(),
        });
        let found = commands.filter(|command| command.begins_with(beginning)).count();
        assert_eq!(found, 1, "{page}: {beginning}, which {reason}");
    }
}

#[test]
fn the_readme_shows_an_answer_of_the_golden_tests() {
    let read = |name: &str| fs::read_to_string(workspace::root().join(name)).unwrap();
    let golden = read("cli/tests/golden/explain-in-use.txt");
    let (_, answer) = golden.split_once('\n').unwrap();
    let (answer, _) = answer.split_once("exit code").unwrap();
    assert!(
        read("README.md").contains(&format!("$ kubectl gpu explain pod/trainer\n{answer}```")),
        "{answer}"
    );
}
