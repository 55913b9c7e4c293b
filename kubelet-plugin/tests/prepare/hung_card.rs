//! A card whose driver calls don't return: its own claims get an error, and nothing else is affected.

use std::time::{Duration, Instant};

use tessera_fakes::poll::until;
use tessera_kubelet_plugin::prepare::{Operation, Phase, PrepareError, Preparer};

use crate::support::{Node, claim, prepare, unprepare};

/// Time limit of driver calls.
const SOON: Duration = Duration::from_millis(200);

/// Anything done within this time did not wait for the card, however busy the machine.
const LONG: Duration = Duration::from_secs(20);

/// A runtime like the plugin's, but with so few threads that a few claims use them up.
fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(8).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LONG * 4, test).await.expect("something waits for the card")
    });
}

fn node(cards: u8) -> Node {
    let mut node = Node::new(cards);
    node.driver_answers_within = SOON;
    node.answer_at_the_latest = LONG;
    node
}

async fn prepares(node: &Node, preparer: &Preparer, name: &str, device: &str) {
    let claim = claim(name);
    node.api.allocate(&claim, &[("gpus", device)]);
    prepare(preparer, &claim).await.unwrap();
    unprepare(preparer, &claim).await.unwrap();
}

fn is_silent(answer: Result<impl Sized, PrepareError>) -> bool {
    let text = "card gpu-01-00 does not answer";
    matches!(&answer, Err(error @ PrepareError::NotAnswering(_)) if error.to_string().starts_with(text))
}

#[test]
fn claims_of_a_card_that_hangs_leave_the_threads_to_the_other_cards() {
    run(async {
        let node = node(2);
        let preparer = node.start().await;
        let hang = node.cards.hang(0);
        for number in 0..20 {
            let mine = claim(&format!("mine-{number}"));
            node.api.allocate(&mine, &[("gpus", "gpu-01-00")]);
            assert!(is_silent(prepare(&preparer, &mine).await), "claim {number}");
            unprepare(&preparer, &mine).await.unwrap();
        }
        assert_eq!(hang.calls(), 1, "what is known to hang is not asked");
        prepares(&node, &preparer, "other", "gpu-02-00").await;
        drop(hang);
        let since = Instant::now();
        let mine = claim("mine");
        node.api.allocate(&mine, &[("gpus", "gpu-01-00")]);
        while is_silent(prepare(&preparer, &mine).await) {
            assert!(since.elapsed() < LONG);
        }
        unprepare(&preparer, &mine).await.unwrap();
        assert!(node.settled().is_empty());
    });
}

/// Claims unprepared before the card counts as not answering must not use up the threads either.
#[test]
fn claims_that_are_given_up_before_the_card_is_found_silent_leave_the_threads_too() {
    run(async {
        let mut node = node(2);
        node.driver_answers_within = LONG;
        let preparer = node.start().await;
        let hang = node.cards.hang(0);
        let mut tasks = Vec::new();
        for number in 0..12 {
            let mine = claim(&format!("mine-{number}"));
            node.api.allocate(&mine, &[("gpus", "gpu-01-00")]);
            let (other, again) = (preparer.clone(), mine.clone());
            let preparing = tokio::spawn(async move { prepare(&other, &again).await });
            while hang.calls() == 0 {
                tokio::task::yield_now().await;
            }
            let other = preparer.clone();
            tasks.push(tokio::spawn(
                async move { (unprepare(&other, &mine).await, preparing.await.unwrap()) },
            ));
        }
        for task in tasks {
            let (unprepared, prepared) = task.await.unwrap();
            unprepared.unwrap();
            assert!(prepared.is_err());
        }
        assert!(hang.calls() <= 2, "{} threads hang", hang.calls());
        prepares(&node, &preparer, "other", "gpu-02-00").await;
    });
}

#[test]
fn a_partition_of_a_card_that_hangs_is_told_to_the_kubelet_and_goes_when_the_card_answers() {
    run(async {
        let node = node(2);
        let mine = claim("mine");
        node.api.allocate(&mine, &[("gpus", "gpu-01-00-mig-1g10gb-6")]);
        let preparer = node.start().await;
        prepare(&preparer, &mine).await.unwrap();
        let hang = node.cards.hang(0);
        // The claim is prepared already, so its card does not matter.
        prepare(&preparer, &mine).await.unwrap();
        for attempt in 0..3 {
            let ended = unprepare(&preparer, &mine).await;
            assert!(is_silent(ended), "attempt {attempt}");
        }
        prepares(&node, &preparer, "other", "gpu-02-00-mig-1g10gb-6").await;
        assert!(hang.calls() <= 2, "{} threads hang", hang.calls());
        drop(hang);
        let since = Instant::now();
        while unprepare(&preparer, &mine).await.is_err() {
            assert!(since.elapsed() < LONG);
        }
        assert!(node.settled().is_empty());
    });
}

#[test]
fn background_work_survives_a_card_that_hangs() {
    run(async {
        let node = node(2);
        let claims = ["gpu-01-00-mig-1g10gb-6", "gpu-02-00-mig-1g10gb-6"].map(|device| {
            let claim = claim(device);
            node.api.allocate(&claim, &[("gpus", device)]);
            claim
        });
        let preparer = node.start().await;
        for claim in &claims {
            prepare(&preparer, claim).await.unwrap();
            std::fs::remove_file(node.spec_path(claim)).unwrap();
        }
        let hang = node.cards.hang(0);
        for _ in 0..5 {
            preparer.repair().await.unwrap();
            preparer.sweep().await.unwrap();
            preparer.restore_specs().await.unwrap();
        }
        assert!(
            claims.iter().all(|claim| node.spec_path(claim).exists()),
            "specs are put back, of both cards"
        );
        assert!(hang.calls() <= 2, "{} threads hang", hang.calls());
    });
}

/// For the dump on a signal.
#[test]
fn what_hangs_is_known_by_claim_card_and_call() {
    run(async {
        let mut node = Node::new(2);
        node.driver_answers_within = LONG;
        node.answer_at_the_latest = LONG;
        let preparer = node.start().await;
        let hang = node.cards.hang(0);
        let (hung, queued) = (claim("hung"), claim("queued"));
        let card = "0000:01:00.0".parse().unwrap();
        for claim in [&hung, &queued] {
            node.api.allocate(claim, &[("gpus", "gpu-01-00")]);
        }
        let prepares = |claim: &tessera_dra_kubelet::ClaimReference| {
            let (preparer, claim) = (preparer.clone(), claim.clone());
            tokio::spawn(async move { prepare(&preparer, &claim).await.map(drop) })
        };
        let first = prepares(&hung);
        let held = || preparer.card_locks().iter().any(|lock| lock.card == card && lock.is_held);
        until("the card is locked", || held() && hang.calls() > 0).await;
        let second = prepares(&queued);
        let waits = || preparer.card_locks().iter().any(|lock| lock.card == card && !lock.is_held);
        until("the other claim waits", waits).await;

        let phase_of = |name: &str| {
            let work = preparer.at_work();
            let work = work.iter().find(|activity| activity.claim.name == name).unwrap();
            assert_eq!(work.operation, Operation::Prepare);
            let holder = preparer.card_locks().into_iter().find(|lock| lock.task == work.task);
            (work.phases.last().map(|(phase, _)| *phase), holder.map(|lock| lock.is_held))
        };
        assert_eq!(phase_of("hung"), (Some(Phase::Hardware), Some(true)));
        assert_eq!(phase_of("queued"), (Some(Phase::Lock), Some(false)));
        assert!(preparer.driver_calls().iter().any(|(about, _)| *about == Some(card)));
        drop(hang);
        first.await.unwrap().unwrap();
        // The card is the first claim's.
        let ended = async { until("the first holds it", || preparer.card_locks().is_empty()).await };
        ended.await;
        drop(second);
    });
}
