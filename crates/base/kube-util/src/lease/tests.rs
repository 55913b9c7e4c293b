use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// An API server with one Lease.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// Clients by name whose requests get no answer.
    cut_off: Vec<&'static str>,
    /// Answers everything so.
    refusal: Option<u16>,
}

impl Server {
    fn client(&self, name: &'static str) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect_bytes().await.unwrap();
                if server.0.lock().unwrap().cut_off.contains(&name) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(server.answer(&method, serde_json::from_slice(&body).ok()))
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, sent: Option<Value>) -> Response<Body> {
        let mut state = self.0.lock().unwrap();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let (code, answer) = match (state.refusal, method, state.lease.clone(), sent) {
            (Some(code), ..) => (code, None),
            (_, &Method::GET, Some(lease), _) => (200, Some(lease)),
            (_, &Method::POST, None, Some(lease)) => (201, Some(state.write(lease))),
            (_, &Method::PUT, Some(stored), Some(lease)) if version(&stored) == version(&lease) => {
                (200, Some(state.write(lease)))
            }
            (_, &Method::GET | &Method::PUT, None, _) => (404, None),
            _ => (409, None),
        };
        let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
            "reason": if code == 404 { "NotFound" } else { "Test" }, "message": format!("refused with {code}")});
        let body = Body::from(answer.unwrap_or(status).to_string().into_bytes());
        Response::builder().status(code).body(body).unwrap()
    }

    fn cut_off(&self, names: &[&'static str]) {
        self.0.lock().unwrap().cut_off = names.to_vec();
    }

    fn lease(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap()
    }
}

impl State {
    fn write(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        lease["apiVersion"] = "coordination.k8s.io/v1".into();
        lease["kind"] = "Lease".into();
        self.lease = Some(lease.clone());
        lease
    }
}

fn options(holder: &str) -> LeaseOptions {
    LeaseOptions {
        duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(700),
        retry: Duration::from_millis(100),
        ..LeaseOptions::new("some", "leader", holder)
    }
}

struct Running {
    leadership: watch::Receiver<Leadership>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), LeaseOptionsError>>,
}

fn candidate(server: &Server, name: &'static str) -> Running {
    let (sender, leadership) = watch::channel(Leadership::Following { holder: None });
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(follow(server.client(name), options(name), sender, shutdown.clone()));
    Running { leadership, shutdown, task }
}

impl Running {
    async fn leads(&mut self) -> Instant {
        let leads = self.leadership.wait_for(|leadership| leadership.may_write_until().is_some());
        drop(tokio::time::timeout(LONG, leads).await.expect("in time").expect("running"));
        Instant::now()
    }

    async fn follows(&mut self, whom: Option<&str>) -> Instant {
        let expected = Leadership::Following { holder: whom.map(str::to_owned) };
        let follows = self.leadership.wait_for(|leadership| *leadership == expected);
        drop(tokio::time::timeout(LONG, follows).await.expect("in time").expect("running"));
        Instant::now()
    }
}

#[tokio::test]
async fn a_released_lease_is_taken_at_once_and_a_killed_leaders_when_its_time_is_over() {
    let server = Server::default();
    let mut first = candidate(&server, "first");
    first.leads().await;
    let mut second = candidate(&server, "second");
    second.follows(Some("first")).await;
    assert_eq!(server.lease()["spec"]["leaseDurationSeconds"], 1);

    first.shutdown.cancel();
    first.task.await.unwrap().unwrap();
    assert_eq!(*first.leadership.borrow(), Leadership::Following { holder: None });
    second.leads().await;
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 1);

    let mut third = candidate(&server, "third");
    third.follows(Some("second")).await;
    let renewed = server.lease()["spec"]["renewTime"].clone();
    // Renewals change the value without waking anybody.
    let until = second.leadership.borrow_and_update().may_write_until();
    while server.lease()["spec"]["renewTime"] == renewed
        || second.leadership.borrow().may_write_until() == until
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!second.leadership.has_changed().unwrap());
    let until = second.leadership.borrow().may_write_until().unwrap();
    second.task.abort();
    let taken = third.leads().await;
    assert!(taken > until, "not while the killed leader might still be writing");
}

#[tokio::test]
async fn a_leader_without_an_answer_stops_before_the_next_starts() {
    let server = Server::default();
    let mut first = candidate(&server, "first");
    first.leads().await;
    let mut second = candidate(&server, "second");
    second.follows(Some("first")).await;
    server.cut_off(&["first"]);
    let mut told = first.leadership.clone();
    let stopped = tokio::spawn(async move {
        let stops = told.wait_for(|leadership| leadership.may_write_until().is_none());
        drop(tokio::time::timeout(LONG, stops).await.expect("in time").expect("running"));
    });
    second.leads().await;
    let until = first.leadership.borrow().may_write_until();
    assert!(until.is_none_or(|until| until < Instant::now()), "both lead");
    stopped.await.unwrap();
    server.cut_off(&[]);
    first.follows(Some("second")).await;
    for running in [first, second] {
        running.shutdown.cancel();
        running.task.await.unwrap().unwrap();
    }
    assert_eq!(server.lease()["spec"]["holderIdentity"], "");
}

#[tokio::test]
async fn nonsense_in_the_lease_and_refusals_are_got_over() {
    let server = Server::default();
    server.0.lock().unwrap().refusal = Some(403);
    server
        .0
        .lock()
        .unwrap()
        .write(json!({"metadata": {"name": "leader", "labels": {"kept": "yes"}}, "spec": {
        "holderIdentity": "ghost", "leaseTransitions": -7, "leaseDurationSeconds": 0}}));
    let mut first = candidate(&server, "first");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*first.leadership.borrow(), Leadership::Following { holder: None });
    server.0.lock().unwrap().refusal = None;
    first.follows(Some("ghost")).await;
    first.leads().await;
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 1);
    assert_eq!(server.lease()["metadata"]["labels"]["kept"], "yes");

    // A Lease without a specification has no holder.
    first.task.abort();
    server.0.lock().unwrap().write(json!({"metadata": {"name": "leader"}}));
    candidate(&server, "second").leads().await;
}

/// Others see the renewal no earlier than its request; when the answer arrives, much of the time may be over.
#[test]
fn a_term_is_counted_from_the_request_not_from_its_answer() {
    let (wall, sent) = (Timestamp::UNIX_EPOCH, Instant::now());
    let mut election = Election::new(LeaseOptions::new("n", "l", "a"), sent);
    let Step::Send { request, .. } = election.next(sent, wall) else { panic!("a look first") };
    election.answered(&request, Ok(None), sent, sent);
    let Step::Send { request, until } = election.next(sent, wall) else { panic!("nobody to wait for") };
    assert_eq!(until, sent + Duration::from_secs(5));
    let election::Request::Create(spec) = &request else { panic!("{request:?}") };
    let lease =
        k8s_openapi::api::coordination::v1::Lease { spec: Some((**spec).clone()), ..Default::default() };
    election.answered(&request, Ok(Some(lease)), sent, sent + Duration::from_secs(4));
    assert_eq!(election.leadership().may_write_until(), Some(sent + Duration::from_secs(10)));
    let late = sent + Duration::from_secs(10);
    election.next(late, wall);
    assert!(election.leadership().may_write_until().is_none());
}

#[test]
fn times_with_which_two_could_lead_are_refused() {
    assert_eq!(options("a").check(), Ok(()));
    assert_eq!(LeaseOptions::new("n", "l", "a").check(), Ok(()));
    assert_eq!(options("").check(), Err(LeaseOptionsError::NoHolder));
    for (duration, renew_deadline, retry) in [(1000, 1000, 100), (1000, 700, 700), (1000, 700, 0)] {
        let [duration, renew_deadline, retry] = [duration, renew_deadline, retry].map(Duration::from_millis);
        let wrong = LeaseOptions { duration, renew_deadline, retry, ..options("a") };
        assert_eq!(wrong.check(), Err(LeaseOptionsError::Order));
    }
    let duration = Duration::from_millis(1500);
    assert_eq!(LeaseOptions { duration, ..options("a") }.check(), Err(LeaseOptionsError::Duration(duration)));
}
