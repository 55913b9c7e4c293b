//! Failures beside a program on a shared card: what goes on, what comes back, and that nothing leaks.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tessera_harness::{PodState, installation};
use tessera_mps_host::protocol::{Daemon, DaemonState};
use tokio::net::UnixStream;

use crate::{
    program::program,
    shares::{share, time_slice},
    stage::{LIMIT, Scene, Stage, eventually, play},
};

/// Label of mps-host's pods.
const MPS_HOST: &str = "app.kubernetes.io/component=mps-host";

/// Process id of the supervisor, in this process's namespace; `None` if there is none.
async fn supervisor(stage: &Stage) -> Option<i32> {
    UnixStream::connect(stage.mps_directory().join("host.sock")).await.ok()?.peer_cred().ok()?.pid()
}

async fn mps_host(stage: &Stage) -> Pod {
    eventually("one pod of mps-host, ready", async || {
        let pods: Api<Pod> = Api::namespaced(stage.client().await, installation::NAMESPACE);
        let all = pods.list(&ListParams::default().labels(MPS_HOST)).await.unwrap().items;
        let [pod] = <[Pod; 1]>::try_from(all).ok()?;
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True").then_some(pod)
    })
    .await
}

/// Number of container restarts of a pod.
fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|status| status.restart_count).sum()
}

async fn restarts_of(scene: &Scene, pod: &str) -> i32 {
    restarts(&scene.pods().await.get(pod).await.unwrap())
}

/// Processes of the node's daemons.
fn processes(daemons: &[Daemon]) -> Vec<(Option<u32>, Option<u32>)> {
    daemons.iter().map(|daemon| (daemon.pid, daemon.server_pid)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_outlive_the_supervisor_and_the_plugin_and_its_upgrade() {
    play("programs_outlive_the_supervisor_and_the_plugin_and_its_upgrade", async |scene| {
        let stage = scene.stage;
        stage.fresh_plugin().await;
        scene.template("quarter", &[share("share", &json!({}))]).await;
        scene.program_from_template("first", "quarter", &["--allocate-mib", "1000", "--hold"]).await;
        scene.ready("first").await;
        let device = scene.device_of("first").await;
        let before = processes(&stage.daemons().await);

        let killed = eventually("the supervisor", async || supervisor(stage).await).await;
        kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
        scene.program_from_template("after-supervisor", "quarter", &["--hold"]).await;
        scene.ready("after-supervisor").await;
        assert_ne!(supervisor(stage).await, Some(killed));

        let before_kill = restarts(&stage.plugin().await);
        stage.kill_plugin().await;
        // A pod that is created meanwhile waits for the kubelet's next round, up to a minute.
        eventually("the plugin to run again", async || {
            (restarts(&stage.plugin().await) > before_kill).then_some(())
        })
        .await;
        scene.program_from_template("after-plugin", "quarter", &["--hold"]).await;
        scene.ready("after-plugin").await;

        let old = stage.plugin().await.metadata.uid;
        let host = mps_host(stage).await.metadata.uid;
        stage.tessera.upgrade(&stage.cluster, "v3", &stage.options).await.unwrap();
        eventually("the new plugin alone", async || (stage.plugin().await.metadata.uid != old).then_some(()))
            .await;
        scene.program_from_template("after-upgrade", "quarter", &["--hold"]).await;
        scene.ready("after-upgrade").await;
        assert_eq!(mps_host(stage).await.metadata.uid, host, "an upgrade leaves mps-host alone");

        for pod in ["first", "after-supervisor", "after-plugin", "after-upgrade"] {
            assert_eq!(scene.device_of(pod).await, device, "one server for all");
            scene.ready(pod).await;
            assert_eq!(scene.another_in(pod, "main", &[]).await, device);
        }
        assert_eq!(processes(&stage.daemons().await), before, "the same daemon and the same server");
        scene.delete_pods(&["first", "after-supervisor", "after-plugin", "after-upgrade"]).await;
        stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_pod_of_mps_host_programs_end_and_with_the_next_they_come_back() {
    play("with_the_pod_of_mps_host_programs_end_and_with_the_next_they_come_back", async |scene| {
        let stage = scene.stage;
        scene.template("quarter", &[share("share", &json!({}))]).await;
        let claim = json!({"name": "card", "resourceClaimTemplateName": "quarter"});
        let container = program("main", &["card"], &["--hold"]);
        for (pod, restart) in [("stays", "Always"), ("ends", "Never")] {
            scene
                .program_pod(pod, restart, std::slice::from_ref(&container), std::slice::from_ref(&claim))
                .await;
        }
        scene.ready("stays").await;
        scene.ready("ends").await;
        let before = scene.device_of("stays").await;

        let old = mps_host(stage).await.metadata.name.unwrap();
        // By default it lets programs go on for half a minute.
        let now = ["delete", "pod", &old, "-n", installation::NAMESPACE, "--grace-period=1"];
        stage.cluster.kubectl(&now).await.unwrap();
        // Both lose their contexts: one fails, the other's container is restarted and becomes a client of the next
        // server, for which it has to wait.
        stage.cluster.wait_for_pod(&scene.namespace, "ends", PodState::Failed, LIMIT).await.unwrap();
        scene.says("ends", "main", "CUDA_ERROR_MPS").await;
        mps_host(stage).await;
        eventually("a daemon with another server", async || {
            let daemons = stage.daemons().await;
            let other = |daemon: &Daemon| {
                daemon.state == DaemonState::Running && daemon.server_pid != before.mps_server
            };
            (daemons.len() == 1 && other(&daemons[0])).then_some(())
        })
        .await;
        // Until its own program has ended, the old container would accept another one, and end it with itself.
        eventually("the container to be started again", async || {
            (restarts_of(&scene, "stays").await > 0).then_some(())
        })
        .await;
        eventually("the program to be on the card again", async || {
            let output = scene.run_in("stays", "main", &[]).await;
            output.success.then_some(())
        })
        .await;
        let again = scene.another_in("stays", "main", &[]).await;
        assert_eq!((&again.device, again.memory_limit_mib), (&before.device, before.memory_limit_mib));
        assert_ne!(again.mps_server, before.mps_server);
        // The plugin was not running when it happened: it finds out, and reports it where the users look.
        let of_pod = "involvedObject.name=stays,reason=MPSServerDied";
        let events = ["get", "events", "-n", &scene.namespace, "--field-selector", of_pod, "-o", "name"];
        eventually("an event of the pod", async || {
            (!stage.cluster.kubectl(&events).await.unwrap().is_empty()).then_some(())
        })
        .await;
        scene.delete_pods(&["stays", "ends"]).await;
        stage.nothing_is_shared().await;
    })
    .await;
}

/// A program faults, and another that ignores the loss of its context stays: no other program gets onto the card, the
/// pods are told which one is in the way, and once it has gone things go on.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_fault_the_pods_are_told_who_must_end_and_when_it_is_over() {
    play("after_a_fault_the_pods_are_told_who_must_end_and_when_it_is_over", async |scene| {
        let stage = scene.stage;
        scene.template("quarter", &[share("share", &json!({}))]).await;
        scene.program_from_template("notebook", "quarter", &["--hold", "--linger"]).await;
        let claim = json!({"name": "card", "resourceClaimTemplateName": "quarter"});
        scene.program_pod("service", "Always", &[program("main", &["card"], &["--hold"])], &[claim]).await;
        for pod in ["notebook", "service"] {
            scene.ready(pod).await;
        }
        let device = scene.device_of("notebook").await;
        let faulty = scene.run_in("notebook", "main", &["--fault"]).await;
        assert!(faulty.stdout.contains("CUDA_ERROR_LAUNCH_FAILED"), "{faulty:?}");
        scene.says("notebook", "main", "CUDA_ERROR_LAUNCH_FAILED").await;
        let told = async |pod: &str, reason: &str, text: &str| {
            let of_pod = format!("involvedObject.name={pod},reason={reason}");
            let notes = ["-o", "jsonpath={.items[*].message}"];
            let events = ["get", "events", "-n", &scene.namespace, "--field-selector", &of_pod];
            eventually(&format!("{reason} of {pod}"), async || {
                let said = stage.cluster.kubectl(&[&events[..], &notes].concat()).await.unwrap();
                said.contains(text).then_some(())
            })
            .await;
        };
        for pod in ["notebook", "service"] {
            told(pod, "MPSServerFault", "(cuda-sample").await;
        }
        let host = mps_host(stage).await.metadata.name.unwrap();
        let ask = ["exec", "-n", installation::NAMESPACE, &host, "--", "mps-host", "check"];
        eventually("mps check to tell of it", async || {
            let output = stage.cluster.try_kubectl(&ask).await.unwrap();
            (!output.success && output.stdout.contains("a program faulted")).then_some(())
        })
        .await;
        let early = scene.run_in("notebook", "main", &[]).await;
        assert!(early.stdout.contains("CUDA_ERROR_MPS_SERVER_NOT_READY"), "{early:?}");
        // A new program on this card waits.
        scene.program_from_template("late", "quarter", &["--hold"]).await;
        told("late", "MPSNotReady", "faulted").await;

        scene.delete_pods(&["notebook"]).await;
        scene.ready("late").await;
        assert_eq!(scene.device_of("late").await.mps_server, device.mps_server, "the same server goes on");
        told("service", "MPSRecovered", "takes programs again").await;
        eventually("mps check to be content", async || {
            stage.cluster.try_kubectl(&ask).await.unwrap().success.then_some(())
        })
        .await;
        eventually("the service to be on the card again", async || {
            scene.run_in("service", "main", &[]).await.success.then_some(())
        })
        .await;
        scene.delete_pods(&["service", "late"]).await;
        stage.nothing_is_shared().await;
    })
    .await;
}

/// Simulates a reboot of the node, which is a set of namespaces. Its processes are killed all at once, its `/run` is
/// emptied, and the emulated cards lose what cards lose; kubelet, containerd and the pods start again from the node's
/// disk. The kernel stays the same, but the plugin reads the boot id from the emulated machine, which has a new one.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_of_the_node_shares_come_back_and_what_nobody_wants_is_gone() {
    play("after_a_reboot_of_the_node_shares_come_back_and_what_nobody_wants_is_gone", async |scene| {
        let stage = scene.stage;
        scene.template("quarter", &[share("share", &json!({}))]).await;
        scene.template("turn", &[time_slice("turn")]).await;
        for (pod, template) in [("stays", "quarter"), ("leaves", "quarter"), ("turn", "turn")] {
            let claim = json!({"name": "card", "resourceClaimTemplateName": template});
            let container = program("main", &["card"], &["--hold"]);
            scene.program_pod(pod, "Always", &[container], &[claim]).await;
            scene.ready(pod).await;
        }
        let (shared, sliced) = (scene.device_of("stays").await, scene.device_of("turn").await);
        assert_ne!(shared.device, sliced.device);
        let (plugin, host) = (stage.plugin().await, mps_host(stage).await);

        stage.cluster.cut_power(0).await.unwrap();
        stage.emulator("reboot", &[]);
        assert_eq!(stage.card_use(&shared.device).compute_mode, 0);
        // This claim is not unprepared before the node is back.
        let force = ["delete", "pod", "leaves", "-n", &scene.namespace, "--force", "--grace-period=0"];
        stage.cluster.kubectl(&force).await.unwrap();
        stage.cluster.power_on(0).await.unwrap();

        eventually("the share to be used again", async || {
            scene.run_in("stays", "main", &[]).await.success.then_some(())
        })
        .await;
        eventually("the time-slice to be used again", async || {
            scene.run_in("turn", "main", &[]).await.success.then_some(())
        })
        .await;
        let (again, turn) =
            (scene.another_in("stays", "main", &[]).await, scene.another_in("turn", "main", &[]).await);
        assert_eq!((&again.device, again.memory_limit_mib), (&shared.device, shared.memory_limit_mib));
        assert_eq!(turn.device, sliced.device);
        assert_eq!(stage.card_use(&sliced.device).time_slice, 1);
        assert_eq!(stage.daemons().await.len(), 1);
        assert!(restarts_of(&scene, "stays").await > 0);
        assert_eq!(stage.plugin().await.metadata.uid, plugin.metadata.uid);
        assert_eq!(mps_host(stage).await.metadata.uid, host.metadata.uid);

        scene.program_from_template("new", "quarter", &["--hold"]).await;
        scene.ready("new").await;
        assert_eq!(scene.device_of("new").await.device, shared.device);
        scene.delete_pods(&["stays", "turn", "new"]).await;
        eventually("every claim to go", async || {
            scene.claims().await.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
        })
        .await;
        stage.nothing_is_shared().await;
    })
    .await;
}
