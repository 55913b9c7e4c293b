//! A job, followed to its end: why it waits, where it runs, its output, its exit code.

use std::io::Write as _;
use std::time::Duration;

use futures::AsyncBufReadExt as _;
use k8s_openapi::api::batch::v1::Job as KubernetesJob;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};
use tessera_api::fleet_view::FleetView;
use tessera_api::waiting::{WAITING_ANNOTATION, Waiting};
use tessera_batch::Job;

use crate::api_server::{FleetPort, failed};
use crate::output::{CommandError, Verdict, printable};

/// Between two looks at a job.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks between two questions to the controller for places in the queue.
const LOOKS: u32 = 10;

/// The container of the job.
const MAIN: &str = "main";

/// Follows the job. Its output goes to standard output, all else to standard error.
///
/// # Errors
/// The job or its pods cannot be read.
pub async fn follow(client: &Client, namespace: &str, job: &Job) -> Result<Verdict, CommandError> {
    let mut follower = Follower {
        jobs: Api::namespaced(client.clone(), namespace),
        pods: Api::namespaced(client.clone(), namespace),
        client: client.clone(),
        name: job.name.clone(),
        said: String::new(),
        printed: None,
    };
    follower.say(&format!("is submitted; `kubectl gpu cancel {} -n {namespace}` ends it", job.name));
    match job.array {
        Some(_) => follower.array().await,
        None => follower.one().await,
    }
}

/// How a Job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Failed,
}

struct Follower {
    jobs: Api<KubernetesJob>,
    pods: Api<Pod>,
    client: Client,
    name: String,
    /// The last message.
    said: String,
    /// The pod whose output is printed, by its uid, and the time of the last line.
    printed: Option<(String, Timestamp)>,
}

impl Follower {
    /// By the pod that runs the script.
    async fn one(&mut self) -> Result<Verdict, CommandError> {
        let mut looks = 0;
        loop {
            // The Job first: a pod that is seen later belongs to this state or a later one.
            let Some(job) = self.job().await? else { return Ok(self.gone()) };
            let pod = self.first().await?;
            match (pod, end(&job)) {
                (Some(pod), end) if phase(&pod) == "Succeeded" || end == Some(End::Failed) => {
                    self.output(&pod, false).await?;
                    let (text, code) = ended(&pod);
                    self.say(&text);
                    return Ok(Verdict::Code(code));
                }
                (_, Some(end)) => return Ok(Verdict::Code(u8::from(end == End::Failed))),
                (None, None) => self.without_pod(&job),
                (Some(pod), None) => match phase(&pod) {
                    "Running" => {
                        self.say(&format!("runs on {}", node(&pod)));
                        self.output(&pod, true).await?;
                    }
                    "Failed" => self.say("its first pod failed"),
                    _ if node(&pod).is_empty() => {
                        if looks % LOOKS == 0 {
                            self.waits(&pod).await;
                        }
                        looks += 1;
                    }
                    _ => self.say(&starts(&pod)),
                },
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Of arrays the numbers of tasks are said, and no output.
    async fn array(&mut self) -> Result<Verdict, CommandError> {
        loop {
            let Some(job) = self.job().await? else { return Ok(self.gone()) };
            let status = job.status.clone().unwrap_or_default();
            self.say(&format!(
                "{} tasks run or wait, {} are done, {} failed",
                status.active.unwrap_or_default(),
                status.succeeded.unwrap_or_default(),
                status.failed.unwrap_or_default()
            ));
            match end(&job) {
                Some(End::Complete) => return Ok(Verdict::Code(0)),
                Some(End::Failed) => return Ok(Verdict::Code(1)),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn job(&self) -> Result<Option<KubernetesJob>, CommandError> {
        Ok(self.jobs.get_opt(&self.name).await.map_err(failed("Job"))?)
    }

    /// The newest pod of index 0.
    async fn first(&self) -> Result<Option<Pod>, CommandError> {
        let labels =
            format!("batch.kubernetes.io/job-name={},batch.kubernetes.io/job-completion-index=0", self.name);
        let pods =
            self.pods.list(&ListParams::default().labels(&labels)).await.map_err(failed("list of Pods"))?;
        Ok(pods.items.into_iter().max_by_key(|pod| pod.metadata.creation_timestamp.clone()))
    }

    /// Says a thing once.
    fn say(&mut self, text: &str) {
        if self.said != text {
            text.clone_into(&mut self.said);
            // If standard error is closed, nobody reads it.
            let _ = writeln!(std::io::stderr(), "{}: {}", self.name, printable(text));
        }
    }

    fn gone(&mut self) -> Verdict {
        self.say("is cancelled");
        Verdict::Code(1)
    }

    fn without_pod(&mut self, job: &KubernetesJob) {
        let is_suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        self.say(if is_suspended { "is suspended (Kueue, for example)" } else { "has no pods yet" });
    }

    /// The controller's place and reason, else what stands on the pod.
    async fn waits(&mut self, pod: &Pod) {
        let view = match FleetPort::find(self.client.clone()).await {
            Ok(Ok(port)) => port.fleet().await.ok(),
            _ => None,
        };
        let text = view.as_ref().and_then(|view| in_queue(view, pod)).or_else(|| on_pod(pod));
        self.say(&text.unwrap_or_else(|| "waits".to_owned()));
    }

    /// Prints the pod's output from where it was printed to: streams end early, too.
    async fn output(&mut self, pod: &Pod, follow: bool) -> Result<(), CommandError> {
        let uid = pod.uid().unwrap_or_default();
        let mut last = self.printed.take().filter(|(of, _)| *of == uid).map(|(_, last)| last);
        let which = LogParams {
            container: Some(MAIN.to_owned()),
            follow,
            since_time: last,
            timestamps: true,
            ..LogParams::default()
        };
        // An output that cannot be read (a node that is gone) does not decide how the job ends.
        if let Ok(mut log) = self.pods.log_stream(&pod.name_any(), &which).await {
            let mut out = std::io::stdout();
            let mut line = Vec::new();
            while let Ok(1..) = log.read_until(b'\n', &mut line).await {
                let (time, text) = timed(&line);
                // The API server's time is in seconds.
                if time.is_none() || time > last {
                    out.write_all(text)?;
                    out.flush()?;
                }
                last = time.or(last);
                line.clear();
            }
        }
        self.printed = last.map(|last| (uid, last));
        Ok(())
    }
}

/// A line of output: its time, and the line itself.
fn timed(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let space = line.iter().position(|byte| *byte == b' ');
    let time = space.and_then(|space| std::str::from_utf8(&line[..space]).ok()?.parse().ok());
    match (time, space) {
        (Some(time), Some(space)) => (Some(time), &line[space + 1..]),
        _ => (None, line),
    }
}

/// The end of a job whose first pod ended like this, in words, and its exit code.
fn ended(pod: &Pod) -> (String, u8) {
    let status = pod.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    let terminated = state(pod, MAIN).and_then(|state| state.terminated.as_ref());
    let code = match phase(pod) {
        "Succeeded" => 0,
        _ => terminated.and_then(|ended| u8::try_from(ended.exit_code).ok()).unwrap_or(1).max(1),
    };
    let text = match reason {
        Some("DeadlineExceeded") => "ended by its time limit".to_owned(),
        Some(reason) => {
            let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
            format!("ended: {reason} {message}").trim_end().to_owned()
        }
        None => format!("ended with exit code {code}"),
    };
    (text, code)
}

fn end(job: &KubernetesJob) -> Option<End> {
    let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find_map(|condition| match (condition.type_.as_str(), condition.status.as_str()) {
        ("Complete", "True") => Some(End::Complete),
        // Said before the last pods are gone.
        ("Failed" | "FailureTarget", "True") => Some(End::Failed),
        _ => None,
    })
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn state<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerState> {
    let status = pod.status.as_ref()?;
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    statuses.filter(|status| status.name == container).find_map(|status| status.state.as_ref())
}

/// What its containers wait for, such as an image.
fn starts(pod: &Pod) -> String {
    let mut states = [MAIN, "gpu-run"].into_iter().filter_map(|name| state(pod, name));
    let waiting = states.find_map(|state| {
        let waiting = state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| *reason != "PodInitializing")?;
        Some(format!(": {reason} {}", waiting.message.as_deref().unwrap_or_default()))
    });
    let text = format!("starts on {}{}", node(pod), waiting.unwrap_or_default());
    text.trim_end().to_owned()
}

fn in_queue(view: &FleetView, pod: &Pod) -> Option<String> {
    let (namespace, name) = (pod.namespace()?, pod.name_any());
    let found = view.waiting.iter().find(|waiting| waiting.namespace == namespace && waiting.name == name)?;
    let why = found.why.trim();
    Some(match found.place {
        0 if why.is_empty() => return None,
        0 => format!("waits: {why}"),
        place if why.is_empty() => format!("waits at place {place}"),
        place => format!("waits at place {place}: {why}"),
    })
}

/// The controller's reason, or kube-scheduler's.
fn on_pod(pod: &Pod) -> Option<String> {
    let noted = pod.annotations().get(WAITING_ANNOTATION).and_then(|text| Waiting::decode(text));
    if let Some(waiting) = noted {
        return Some(format!("waits: {}", waiting.message));
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    Some(format!("waits: {}", scheduled.message.as_deref().or(scheduled.reason.as_deref())?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "train-0-x", "namespace": "team" }, "spec":
            { "nodeName": "node-a", "containers": [] }, "status": status }))
        .unwrap()
    }

    #[test]
    fn a_job_ends_with_the_exit_code_of_its_first_pod() {
        for (phase, reason, code, expected) in [
            ("Succeeded", None, 0, ("ended with exit code 0", 0)),
            ("Failed", None, 3, ("ended with exit code 3", 3)),
            ("Failed", None, 137, ("ended with exit code 137", 137)),
            ("Failed", Some("DeadlineExceeded"), 0, ("ended by its time limit", 1)),
            ("Failed", Some("Evicted"), 300, ("ended: Evicted", 1)),
        ] {
            let pod = pod(json!({ "phase": phase, "reason": reason, "containerStatuses": [
                { "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                  "state": { "terminated": { "exitCode": code } } }] }));
            let (text, code) = ended(&pod);
            assert_eq!((text.as_str(), code), expected);
        }
    }

    #[test]
    fn lines_come_without_their_time() {
        let (time, text) = timed(b"2026-11-29T03:00:00.000000001Z step 1\n");
        assert_eq!((time.map(|time| time.subsec_nanosecond()), text), (Some(1), &b"step 1\n"[..]));
        assert_eq!(timed(b"no time\n"), (None, &b"no time\n"[..]));
        assert_eq!(timed(b"\xff"), (None, &b"\xff"[..]));
    }

    #[test]
    fn it_is_said_why_a_job_waits() {
        let said = on_pod(&pod(json!({ "conditions": [{ "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/2 nodes are available" }] })));
        assert_eq!(said.as_deref(), Some("waits: 0/2 nodes are available"));
        let view = FleetView {
            waiting: vec![tessera_api::fleet_view::WaitingPod {
                namespace: "team".to_owned(),
                name: "train-0-x".to_owned(),
                why: "8 cards are missing".to_owned(),
                place: 2,
                ..Default::default()
            }],
            ..FleetView::default()
        };
        let said = in_queue(&view, &pod(json!({})));
        assert_eq!(said.as_deref(), Some("waits at place 2: 8 cards are missing"));
        let pulls = pod(
            json!({ "containerStatuses": [{ "name": "main", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "waiting": { "reason": "ErrImagePull", "message": "no such image" } } }] }),
        );
        assert_eq!(starts(&pulls), "starts on node-a: ErrImagePull no such image");
    }
}
