//! Decides the changes to a card for its layout.

use std::fmt;

use tessera_inventory::layout::PlannedInstance;
use tessera_nvml::GpuInstance;

use super::look::Seen;
use super::record::{LayoutRecord, RecordedInstance};
use tessera_inventory::layout::Desired;

/// A message names at most this many claims or processes.
const NAMED: usize = 5;

/// Action for a card.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The card matches the layout. The record to keep, if any: `None` if nothing on the card belongs to the layout.
    Done(Option<LayoutRecord>),
    /// Something is in the way.
    Wait(Obstacle),
    /// The mode is ordered and changes with the card's next reset.
    NeedsReset {
        /// The mode to come.
        on: bool,
    },
    /// This work can be done now.
    Do(Box<Work>),
}

/// Why a card can't be changed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Claims hold a part of the card.
    Claims(Vec<String>),
    /// Programs use the card.
    Clients(Vec<u32>),
    /// Foreign instances are on the card.
    Foreign(Vec<GpuInstance>),
}

/// Steps to the wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Instances to destroy, the first step.
    pub(super) destroy: Vec<GpuInstance>,
    /// Then, how to switch MIG mode.
    pub(super) switch: Option<bool>,
    /// Then, instances to make.
    pub(super) create: Vec<PlannedInstance>,
    /// The journal's record during the work.
    pub(super) intent: LayoutRecord,
    /// The journal's record afterwards; `None` if nothing on the card belongs to the layout any more.
    pub(super) complete: Option<LayoutRecord>,
    /// The journal's record while the switch waits for a reset; `None` if the mode is not a layout's.
    pub(super) ordered: Option<LayoutRecord>,
}

/// Compares the present with the wanted state.
pub(super) fn decide(
    layout: &str,
    desired: &Desired,
    seen: &Seen,
    record: Option<&LayoutRecord>,
    claims: &[String],
) -> Decision {
    let wanted = desired.instances();
    let is_wanted = |instance: &GpuInstance| wanted.iter().any(|planned| is(planned, instance));
    let foreign: Vec<GpuInstance> = seen
        .instances
        .iter()
        .filter(|instance| !record.is_some_and(|record| record.made(instance)))
        .cloned()
        .collect();
    let missing: Vec<PlannedInstance> = wanted
        .iter()
        .filter(|planned| !seen.instances.iter().any(|there| is(planned, there)))
        .cloned()
        .collect();
    let excess: Vec<GpuInstance> =
        seen.instances.iter().filter(|instance| !is_wanted(instance)).cloned().collect();
    // Others' instances need the mode.
    let switch =
        switch(desired, seen, record).filter(|on| *on || *desired == Desired::Off || foreign.is_empty());
    let mode_switched = record.is_some_and(|record| record.mode_switched)
        || (switch == Some(true) && !(seen.mode.current || seen.mode.pending));
    let mode_only = mode_only(layout, seen, switch).filter(|_| mode_switched);

    if missing.is_empty() && excess.is_empty() && switch.is_none() {
        // Identical instances made by somebody else stay theirs.
        let own = record.filter(|_| !seen.instances.is_empty() && foreign.is_empty());
        let record = own.map(|own| LayoutRecord::new(layout, recorded(wanted), own.mode_switched));
        return Decision::Done(record.or(mode_only));
    }
    if let Desired::Untouched = desired
        && record.is_none()
    {
        return Decision::Done(None);
    }
    if !foreign.is_empty() {
        // With nothing left of the layout to do, others' instances don't matter, and are left alone.
        if wanted.is_empty() && excess.iter().all(|instance| foreign.contains(instance)) {
            return match desired {
                Desired::Off => Decision::Wait(Obstacle::Foreign(foreign)),
                _ => Decision::Done(mode_only),
            };
        }
        if !wanted.is_empty() || *desired == Desired::Off {
            return Decision::Wait(Obstacle::Foreign(foreign));
        }
    }
    if !claims.is_empty() {
        return Decision::Wait(Obstacle::Claims(claims.to_vec()));
    }
    if !seen.clients.is_empty() {
        return Decision::Wait(Obstacle::Clients(seen.clients.iter().copied().collect()));
    }
    let destroy: Vec<GpuInstance> =
        excess.into_iter().filter(|instance| !foreign.contains(instance)).collect();
    if let Some(on) = switch
        && seen.switch_needs_reset
        && destroy.is_empty()
        && seen.mode.pending == on
    {
        return Decision::NeedsReset { on };
    }
    let mut instances = recorded(wanted);
    instances.extend(record.iter().flat_map(|record| record.instances.iter().cloned()));
    instances.sort();
    instances.dedup();
    let complete = LayoutRecord::new(layout, recorded(wanted), mode_switched);
    Decision::Do(Box::new(Work {
        destroy,
        switch,
        create: missing,
        intent: LayoutRecord::new(layout, instances, mode_switched),
        complete: if wanted.is_empty() {
            mode_only.clone().filter(|_| switch != Some(false))
        } else {
            Some(complete)
        },
        ordered: mode_only,
    }))
}

/// How to switch the mode; `None` if already right.
fn switch(desired: &Desired, seen: &Seen, record: Option<&LayoutRecord>) -> Option<bool> {
    let wanted = match desired {
        Desired::Fixed(_) => true,
        Desired::Off => false,
        // A mode following the claims is only restored.
        Desired::OnDemand if seen.switch_needs_reset => true,
        Desired::OnDemand | Desired::Untouched if record.is_some_and(|record| record.mode_switched) => false,
        Desired::OnDemand | Desired::Untouched | Desired::Impossible(_) => return None,
    };
    (seen.mode.current != wanted || seen.mode.pending != wanted).then_some(wanted)
}

/// Record of a mode without instances, where the card keeps its mode until a reset: otherwise nothing would be left
/// to show a layout's switch.
fn mode_only(layout: &str, seen: &Seen, switch: Option<bool>) -> Option<LayoutRecord> {
    let is_on = seen.mode.current || seen.mode.pending || switch == Some(true);
    (seen.switch_needs_reset && is_on).then(|| LayoutRecord::new(layout, Vec::new(), true))
}

/// Whether an instance is the planned one, and complete.
fn is(planned: &PlannedInstance, instance: &GpuInstance) -> bool {
    (planned.profile_id, planned.placement) == (instance.profile_id, instance.placement)
        && instance.compute_instances.len() == 1
}

fn recorded(wanted: &[PlannedInstance]) -> Vec<RecordedInstance> {
    wanted.iter().map(RecordedInstance::from).collect()
}

impl Obstacle {
    /// Whether the obstacle may pass by itself. Until then the card must take no new claims.
    pub(super) fn may_pass(&self) -> bool {
        !matches!(self, Obstacle::Foreign(_))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Claims(claims) => {
                write!(formatter, "in use by claim {}", some(claims))
            }
            Obstacle::Clients(pids) => write!(formatter, "in use by process {}", some(pids)),
            Obstacle::Foreign(instances) => {
                let instances: Vec<String> = instances
                    .iter()
                    .map(|instance| format!("{} at {}", instance.id, instance.placement.start))
                    .collect();
                write!(
                    formatter,
                    "somebody else's GPU instance {}; destroy what is there (nvidia-smi mig -dci, -dgi), or take the \
                     card out of the layout",
                    some(&instances)
                )
            }
        }
    }
}

fn some(all: &[impl ToString]) -> String {
    let mut text: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    if all.len() > NAMED {
        text.push(format!("{} more", all.len() - NAMED));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests;
