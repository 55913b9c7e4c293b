//! `kubectl gpu explain`: why a pod or claim waits, or why its devices were chosen.

mod alternatives;
mod given;
mod steering;

use std::collections::HashMap;
use std::fmt::Write;

use tessera_cluster::outcome::Reason;
use tessera_cluster::subject::Subject;
use tessera_cluster::{Cluster, PodExt};

use crate::api_server::{self, Controller, News};
use crate::arguments::ExplainArguments;
use crate::commands::allocate::some_of;
use crate::explain::{
    self, DeviceVerdict, ExceededQuota, ExceededResource, Explanation, LowerPriority, Managed, NodeDiagnosis,
    ReasonCount, RequestDiagnosis, Steering, Unmade,
};
use crate::managed;
use crate::output::{self, CommandError, Paint, Verdict, counted, printable};
use crate::share_ids::asker;
use crate::source::Source;
use crate::subject;

/// Number of entries (groups of nodes, reasons, changes, names) that are shown without `-v`.
const SHOWN: usize = 4;
/// The same with `-v`: a fleet has thousands of devices; programs get all with `-o json`.
const SHOWN_WITH_VERBOSE: usize = 50;

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or the named one does not exist.
pub fn run(arguments: &ExplainArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, api_server::Wanted::All { volumes: false, pools: false })?;
    let subject = subject::named(&source.objects, &arguments.subject, &source.namespace)?;
    let pod = subject.pod.as_ref();
    let news = || {
        pod.map(|pod| match source.is_live {
            true => api_server::news(&arguments.source, pod),
            false => News::of_events(pod, &source.events),
        })
    };
    let first_news =
        if Steering::concerns(&subject) || explain::lacks_claim(&subject) { news() } else { None };
    let mut asker = asker(source.release(&arguments.release));
    let cluster = Cluster::of(source.objects)?;
    let mut explanation = explain::explain(&cluster, &subject, first_news.clone(), &mut asker)?;
    if !explanation.fits && explanation.meets_managed() && managed::may_serve(&subject) {
        let News { controller, event, .. } = first_news.clone().or_else(news).unwrap_or_default();
        if let Some(objects) = managed::of_controller(cluster.into_objects()) {
            let cluster = Cluster::of(objects)?;
            // Of the cards as they are: here the managed ones look like others.
            let lower = explanation.lower;
            explanation = explain::explain(&cluster, &subject, first_news, &mut asker)?;
            explanation.lower = lower.filter(|_| explanation.lower.is_some());
            // There the controller's reason is told already.
            explanation.steering.take_if(|steering| !steering.gated && steering.nominated.is_none());
            explanation.managed = Some(Managed { controller, event });
        }
    }
    match arguments.output {
        Some(format) => output::structured(format, &explanation)?,
        None => {
            let screen = Screen { paint: Paint::standard_output(), verbose: arguments.verbose };
            output::print(&screen.text(&subject, &explanation))?;
        }
    }
    Ok(if explanation.fits { Verdict::Yes } else { Verdict::No })
}

struct Screen {
    paint: Paint,
    verbose: bool,
}

// Writing to a String cannot fail: the results of writeln! are dropped.
impl Screen {
    fn shown(&self) -> usize {
        if self.verbose { SHOWN_WITH_VERBOSE } else { SHOWN }
    }

    fn text(&self, subject: &Subject, explanation: &Explanation) -> String {
        let mut text = String::new();
        let is_waiting = !explanation.nodes.is_empty();
        let verdict = match (is_waiting, explanation.fits) {
            (true, true) if explanation.managed.is_some() => {
                self.paint.good("fits; waits for the controller")
            }
            (true, true) => self.paint.good("fits now"),
            (true, false) if explanation.unmade.is_some() => {
                self.paint.bad("waits: its ResourceClaim could not be created")
            }
            (true, false) if explanation.nodes.iter().any(|node| node.outcome.fits) => {
                self.paint.bad("waits, but would fit")
            }
            (true, false) => self.paint.bad("does not fit"),
            (false, true) if explanation.given.is_empty() => self.paint.good("asks for no devices"),
            (false, true) if explanation.has_fault() => {
                self.paint.bad("has its devices, but not all are healthy")
            }
            (false, true) => self.paint.good("has its devices"),
            (false, false) => self.paint.bad("waits"),
        };
        let _ = writeln!(text, "{}: {verdict}", self.paint.bold(&explanation.subject));
        if let Some(converted) = &explanation.converted {
            let _ = writeln!(text, "  its limits asked for {}, which became claims", printable(converted));
        }
        for obstacle in &explanation.obstacles {
            let _ = writeln!(text, "  {}", self.paint.bad(&printable(obstacle)));
        }
        if let Some(unmade) = &explanation.unmade {
            self.unmade(&mut text, unmade);
        }
        for hint in &explanation.hints {
            let _ = writeln!(text, "  {}", self.paint.hint(&printable(hint)));
        }
        for given in &explanation.given {
            self.given(&mut text, given);
        }
        if let Some(managed) = &explanation.managed {
            self.managed(&mut text, managed);
        }
        if let Some(lower) = &explanation.lower {
            self.lower(&mut text, lower);
        }
        if let Some(steering) = &explanation.steering {
            let needs = match (is_waiting, explanation.obstacles.is_empty()) {
                (true, _) => steering::Needs::Devices,
                (false, true) => steering::Needs::Nothing,
                (false, false) => steering::Needs::Unknown,
            };
            text += &steering::text(steering, needs, self.shown(), self.paint);
        }
        self.nodes(&mut text, explanation);
        if !explanation.nearest.is_empty() {
            let _ = writeln!(text, "\nIt would fit if");
            for nearest in explanation.nearest.iter().take(self.shown()) {
                let nodes: Vec<&str> = nearest.nodes.iter().map(String::as_str).collect();
                let change = self.paint.hint(&printable(&nearest.change));
                let _ = writeln!(text, "  {change}: {}", some_of(&nodes, self.shown()));
                if self.verbose && nearest.claims.len() > 1 {
                    let claims: Vec<&str> = nearest.claims.iter().map(String::as_str).collect();
                    let _ = writeln!(text, "    {}", printable(&some_of(&claims, self.shown())));
                }
            }
            self.more(&mut text, explanation.nearest.len(), ["way", "ways"]);
        }
        if !explanation.untried.is_empty() {
            let nodes: Vec<&str> = explanation.untried.iter().map(String::as_str).collect();
            let _ = writeln!(
                text,
                "\nSearch stopped after {} combinations; not fully searched: {}. To search one node, give it, its \
                 slices and the claims with -f",
                explain::TRIES,
                some_of(&nodes, self.shown())
            );
        }
        self.scheduler_says(&mut text, subject);
        text
    }

    /// The reason for the refusal of a claim.
    fn unmade(&self, text: &mut String, unmade: &Unmade) {
        let Some(ExceededQuota { name, resources }) = &unmade.quota else {
            let said = format!("Kubernetes said: {}", unmade.message);
            let _ = writeln!(text, "  {}", self.paint.bad(&printable(&said)));
            return;
        };
        let quota = format!("the ResourceQuota {name} of its namespace has too little left:");
        let _ = writeln!(text, "  {}", self.paint.bad(&printable(&quota)));
        for resource in resources {
            let ExceededResource { name, requested, used, limited } = resource;
            let said = format!("{name}: {requested} requested, {used} of {limited} used");
            let _ = writeln!(text, "    {}", printable(&said));
        }
        let help = "it is created once claims of the namespace are deleted or the quota is raised; free devices do not help";
        let _ = writeln!(text, "  {}", self.paint.hint(help));
    }

    /// Pods of lower priority in the way: kube-scheduler does not evict them.
    fn lower(&self, text: &mut String, lower: &LowerPriority) {
        let claims: Vec<&str> = lower.claims.iter().map(String::as_str).collect();
        let said = format!(
            "pods with a priority below {} hold devices it could use and keep them: kube-scheduler does not evict \
             pods for devices (claims: {})",
            lower.priority,
            some_of(&claims, self.shown())
        );
        let _ = writeln!(text, "  {}", printable(&said));
        let help = "in pools with allocation Managed the controller does (docs/gangs.md, Preemption)";
        let _ = writeln!(text, "  {}", self.paint.hint(help));
    }

    /// The controller's responsibility and its last messages.
    fn managed(&self, text: &mut String, managed: &Managed) {
        let whose = "the controller allocates managed cards in queue order: by priority, then first come, first \
                     served (docs/managed.md)";
        let _ = writeln!(text, "  {whose}");
        match &managed.controller {
            Some(Controller::Absent) => {
                let _ = writeln!(
                    text,
                    "  {}",
                    self.paint.bad("no controller leads: managed cards are not allocated")
                );
            }
            Some(Controller::Silent { holder, seconds }) => {
                let silent = format!("the controller {holder} has not renewed its Lease for {seconds} s");
                let _ = writeln!(text, "  {}", self.paint.bad(&printable(&silent)));
            }
            Some(Controller::Leading { .. }) | None => {}
        }
        if let Some(event) = &managed.event {
            let _ = writeln!(text, "  the controller said: {}: {}", event.reason, printable(&event.message));
        }
    }

    /// Nodes with the same answer are shown together, fewest missing devices first.
    fn nodes(&self, text: &mut String, explanation: &Explanation) {
        let fitting: Vec<&NodeDiagnosis> =
            explanation.nodes.iter().filter(|node| node.outcome.fits).collect();
        if !fitting.is_empty() {
            let who =
                if explanation.managed.is_some() { "One of these, from the controller" } else { "Would get" };
            let _ = writeln!(text, "\n{who}");
        }
        for node in fitting.iter().take(self.shown()) {
            let devices: Vec<String> = node
                .outcome
                .claims
                .iter()
                .flat_map(|claim| claim.results())
                .map(|result| format!("{} for {}", result.device, result.request))
                .collect();
            let _ = writeln!(text, "  {}: {}", node.outcome.node, self.paint.good(&devices.join(", ")));
            self.would_not_get(text, &node.passed_alternatives);
        }
        self.more(text, fitting.len(), ["node", "nodes"]);
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        let mut lacking: Vec<&NodeDiagnosis> =
            explanation.nodes.iter().filter(|node| !node.outcome.fits).collect();
        // A node rejecting the pod has no missing devices, but is of no use either.
        lacking.sort_by_key(|node| (node.requests.is_empty(), node.missing()));
        for node in lacking {
            let body = self.node(node);
            match groups.iter_mut().find(|(known, _)| *known == body) {
                Some((_, nodes)) => nodes.push(&node.outcome.node),
                None => groups.push((body, vec![&node.outcome.node])),
            }
        }
        for (body, nodes) in groups.iter().take(self.shown()) {
            let _ = write!(text, "\n{}\n{body}", self.paint.bold(&some_of(nodes, self.shown())));
        }
        self.more(text, groups.len(), ["group of nodes", "groups of nodes"]);
    }

    fn node(&self, node: &NodeDiagnosis) -> String {
        let mut text = String::new();
        match &node.outcome.reason {
            Some(Reason::Node(reason)) => {
                let _ = writeln!(text, "  not eligible: {}", printable(reason));
                return text;
            }
            Some(Reason::Room(reason)) => {
                let _ = writeln!(text, "  has the devices, but no room: {}", printable(reason));
                return text;
            }
            Some(Reason::Error(error)) => {
                let error = format!("kube-scheduler fails with an error: {}", printable(error));
                let _ = writeln!(text, "  {}", self.paint.bad(&error));
            }
            _ => {}
        }
        for request in &node.requests {
            self.request(&mut text, request);
        }
        for together in &node.together {
            let _ = writeln!(text, "  {}", self.paint.bad(&printable(together)));
        }
        if text.is_empty() {
            let _ = writeln!(text, "  not enough devices");
        }
        text
    }

    fn request(&self, text: &mut String, request: &RequestDiagnosis) {
        let wanted = request.wanted.map_or("all".to_owned(), |count| count.to_string());
        let enough = request.wanted.is_none_or(|wanted| request.free >= wanted);
        let free = format!("{} of {} free", request.free, counted(request.devices, "device"));
        let free = if enough { self.paint.good(&free) } else { self.paint.bad(&free) };
        let claim = printable(&request.claim);
        let class = if request.class_exists { "" } else { " (does not exist)" };
        let _ = writeln!(
            text,
            "  {} of {claim} wants {wanted} of class {}{class}: {free}",
            printable(&request.request),
            printable(&request.class)
        );
        self.reasons(text, &request.reasons, "    ");
        if self.verbose {
            self.verdicts(text, &request.verdicts);
        }
    }

    /// Devices with the same verdict are shown together, in their order.
    fn verdicts(&self, text: &mut String, verdicts: &[DeviceVerdict]) {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        for verdict in verdicts {
            let obstacle = verdict.obstacle.as_ref();
            let why =
                obstacle.map_or("free".to_owned(), |obstacle| self.said(&obstacle.summary(), obstacle.by()));
            let group = *known.entry(why.clone()).or_insert_with(|| {
                groups.push((why, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(&verdict.id.device);
        }
        for (why, devices) in groups.iter().take(self.shown()) {
            let devices = some_of(devices, self.shown());
            let _ = writeln!(text, "      {}: {}", printable(&devices), printable(why));
        }
        if groups.len() > self.shown() {
            let rest: usize = groups[self.shown()..].iter().map(|(_, devices)| devices.len()).sum();
            let _ = writeln!(text, "      … and {} more (-o json has all)", counted(rest, "device"));
        }
    }

    fn reasons(&self, text: &mut String, reasons: &[ReasonCount], indent: &str) {
        for reason in reasons.iter().take(self.shown()) {
            let mut what = reason.reason.clone();
            if !reason.beside.is_empty() {
                let beside: Vec<&str> = reason.beside.iter().map(String::as_str).collect();
                what = format!("{what} beside {}", some_of(&beside, self.shown()));
            }
            let said = self.said(&what, &reason.by);
            let _ = writeln!(text, "{indent}{:>4}  {}", reason.devices, printable(&said));
        }
        if reasons.len() > self.shown() {
            let rest = &reasons[self.shown()..];
            let devices: usize = rest.iter().map(|reason| reason.devices).sum();
            let _ = writeln!(
                text,
                "{indent}{devices:>4}  for {} ({} shows more)",
                counted(rest.len(), "other reason"),
                self.who_shows_more()
            );
        }
    }

    /// A reason, with the claims behind it.
    fn said(&self, reason: &str, by: &[String]) -> String {
        if by.is_empty() {
            return reason.to_owned();
        }
        let names: Vec<&str> = by.iter().map(String::as_str).collect();
        let names = some_of(&names, self.shown());
        if reason == "in use" { format!("in use by {names}") } else { format!("{reason}; in use by {names}") }
    }

    /// How many more there are; `what`: one of them, and several.
    fn more(&self, text: &mut String, count: usize, what: [&str; 2]) {
        if count > self.shown() {
            let more = count - self.shown();
            let what = what[usize::from(more > 1)];
            let _ = writeln!(text, "  … and {more} more {what} ({} shows more)", self.who_shows_more());
        }
    }

    const fn who_shows_more(&self) -> &'static str {
        if self.verbose { "-o json" } else { "-v" }
    }

    /// kube-scheduler's own message in the pod's status, last.
    fn scheduler_says(&self, text: &mut String, subject: &Subject) {
        if let Some(said) = subject.pod.as_ref().and_then(PodExt::scheduler_message) {
            let _ = writeln!(text, "\nkube-scheduler says: {}", printable(said));
        }
    }
}
