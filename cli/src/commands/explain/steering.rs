//! The controller's part of an explanation, as text.

use tessera_api::gpu_pool::Allocation;
use tessera_api::steering::GATE;
use tessera_cluster::outcome::Reason;

use crate::api_server::Controller;
use crate::commands::allocate::some_of;
use crate::explain::Steering;
use crate::output::{Paint, printable};

/// One line; `text` may hold words of others.
struct Line {
    text: String,
    is_bad: bool,
}

impl Line {
    fn plain(text: String) -> Self {
        Line { text, is_bad: false }
    }

    fn bad(text: String) -> Self {
        Line { text, is_bad: true }
    }
}

/// The pod's need for devices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Devices,
    Nothing,
    /// An obstacle comes first: a template that does not exist, for example.
    Unknown,
}

/// A paragraph with one line a fact.
pub fn text(steering: &Steering, needs: Needs, shown: usize, paint: Paint) -> String {
    let mut lines = Vec::new();
    if steering.gated {
        lines.push(Line::plain(gate(steering, needs)));
        lines.extend(steering.controller.as_ref().map(controller));
    }
    if let Some(event) = &steering.event {
        let time = event.time.as_deref().map(|time| format!(" ({time})")).unwrap_or_default();
        let said = format!("the controller said{time}: {}: {}", event.reason, event.message);
        lines.push(Line::plain(said));
    }
    if needs == Needs::Devices && steering.gated {
        lines.extend(pools(steering, shown).into_iter().map(Line::plain));
    }
    lines.extend(nominated(steering));
    let is_steered = steering.gated || steering.nominated.is_some();
    let mut text = format!("\n{}\n", paint.bold(if is_steered { "Steering" } else { "Controller" }));
    for line in lines {
        let said = printable(&line.text);
        text += &format!("  {}\n", if line.is_bad { paint.bad(&said) } else { said });
    }
    text
}

fn gate(steering: &Steering, needs: Needs) -> String {
    let who = format!("the pod has the gate {GATE}");
    if !steering.other_gates.is_empty() {
        let others = steering.other_gates.join(", ");
        return format!("{who}: the controller considers the pod once no other gate is left (now: {others})");
    }
    match needs {
        Needs::Devices => format!("{who}: the controller lifts it after proposing a node to kube-scheduler"),
        Needs::Nothing => format!("{who} and needs no devices any more: the controller lifts it at once"),
        Needs::Unknown => format!("{who}: the controller keeps it until the pod can be scheduled"),
    }
}

fn controller(controller: &Controller) -> Line {
    let help = "`kubectl gpu ungate` lets the pod start without it";
    match controller {
        Controller::Absent => Line::bad(format!("no controller leads (Lease tessera-controller): {help}")),
        Controller::Silent { holder, seconds } => Line::bad(format!(
            "the controller {holder} has not renewed its Lease for {seconds} s by this machine's clock: if none runs, {help}"
        )),
        Controller::Leading { holder } => Line::plain(format!("the controller runs: {holder} leads")),
    }
}

fn pools(steering: &Steering, shown: usize) -> Vec<String> {
    if steering.pools.is_empty() {
        return vec!["no eligible node reports GPU pools".to_owned()];
    }
    let pools = steering.pools.iter().map(|pool| {
        let nodes: Vec<&str> = pool.nodes.iter().map(String::as_str).collect();
        let nodes = some_of(&nodes, shown);
        match (&pool.pool, pool.allocation) {
            (None, _) => format!("cards of no GPU pool, left to kube-scheduler: {nodes}"),
            (Some(name), Allocation::Native) => {
                format!("GPU pool {name}, Native, left to kube-scheduler: {nodes}")
            }
            (Some(name), allocation) => {
                format!("GPU pool {name}, {allocation}, considered by the controller: {nodes}")
            }
        }
    });
    pools.collect()
}

fn nominated(steering: &Steering) -> Option<Line> {
    let nominated = steering.nominated.as_ref()?;
    let proposed = format!("proposed node: {}", nominated.node);
    Some(match &nominated.reason {
        None if nominated.is_known => {
            Line::plain(format!("{proposed}, where the pod fits; kube-scheduler tries it first"))
        }
        None => Line::plain(proposed),
        Some(
            Reason::Node(reason) | Reason::Devices(reason) | Reason::Room(reason) | Reason::Error(reason),
        ) => Line::bad(format!(
            "{proposed}, where the pod does not fit: {reason}; kube-scheduler then tries all nodes"
        )),
    })
}
