//! Whether pods with claims can start on this node now.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::discovery::Looks;
use crate::driver::Driver;
use crate::gpu_pools::Reading;
use crate::prepare::DriverFilesState;
use tessera_dra_kubelet::registration::RegistrationState;
use tessera_publish::{PublishStatus, Role};

/// Not ready if no card has answered for this long. One hanging card must not take the plugin out of service for the
/// others. But if none has answered in three looks, nothing about this node is known, and no claim can be prepared.
const NO_ANSWER: Duration = Duration::from_secs(120);

/// Maximum number of unreadable things in an answer.
const MOST_UNREAD: usize = 4;

/// Inputs of readiness.
pub struct Readiness {
    /// Whether the sockets listen.
    pub listening: watch::Receiver<bool>,
    /// Obstacle to listening, if any.
    pub trouble: watch::Receiver<Option<String>>,
    /// The kubelet's registration of this instance.
    pub registration: watch::Receiver<RegistrationState>,
    /// The driver library.
    pub hardware: Driver,
    /// Reason for a missing driver library.
    pub hardware_reason: watch::Receiver<Option<String>>,
    /// When the hardware was looked at.
    pub looks: watch::Receiver<Looks>,
    /// Whether the node has the files of its driver.
    pub driver_files: watch::Receiver<DriverFilesState>,
    /// How reading the GPU pools goes.
    pub pools: watch::Receiver<Reading>,
    /// State of the publisher.
    pub published: watch::Receiver<PublishStatus>,
}

/// One condition of readiness.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name.
    pub name: &'static str,
    /// Why the condition is not met; `None` if met.
    pub missing: Option<String>,
    /// Details; usually empty.
    pub note: String,
}

impl Readiness {
    /// Whether the sockets listen.
    pub fn listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// All conditions, in the usual order of becoming true.
    pub fn conditions(&self) -> Vec<Condition> {
        let trouble = || self.trouble.borrow().clone().unwrap_or_else(|| "they are not there yet".to_owned());
        let listening = (!self.listening()).then(trouble);
        let hardware = match &*self.hardware.borrow() {
            Some(_) => None,
            None => Some(self.hardware_reason.borrow().clone().unwrap_or_else(|| "not read yet".to_owned())),
        };
        let condition = |name, missing| Condition { name, missing, note: String::new() };
        vec![
            condition("sockets", listening),
            condition("hardware", hardware),
            driver_files(&self.driver_files.borrow()),
            cards_read(&self.looks.borrow()),
            pools_known(&self.pools.borrow()),
            condition("registered with the kubelet", registration(&self.registration.borrow())),
            slices(&self.published.borrow()),
        ]
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").field("conditions", &self.conditions()).finish()
    }
}

fn driver_files(state: &DriverFilesState) -> Condition {
    let not_used = |version: &String| {
        format!(
            "nvidia-ctk {version} is not used: its hooks are unsafe (CVE-2025-23266), update it to 1.17.8 or newer"
        )
    };
    let note = state.unsafe_tool.as_ref().map(not_used).unwrap_or_default();
    Condition { name: "files of the driver there", missing: state.missing.clone(), note }
}

fn cards_read(looks: &Looks) -> Condition {
    let ago = |at: Instant| format!("{} s ago", at.elapsed().as_secs());
    let complete = |at| format!("last complete look {}", ago(at));
    let mut note = looks.complete.map_or_else(|| "no complete look yet".to_owned(), complete);
    if !looks.hanging.is_empty() {
        let cards: Vec<String> = looks.hanging.iter().map(ToString::to_string).collect();
        note.push_str(&format!("; a call of the driver hangs about {}", cards.join(", ")));
    }
    for (card, number) in &looks.unknown_recoveries {
        note.push_str(&format!(
            "; the driver recommends recovery action {number} for {card}, which is not known here"
        ));
    }
    for unread in looks.unread.iter().take(MOST_UNREAD) {
        note.push_str(&format!("; cannot read {unread}"));
    }
    if let Some(more) = looks.unread.len().checked_sub(MOST_UNREAD).filter(|more| *more > 0) {
        note.push_str(&format!("; and {more} more, see the log"));
    }
    let missing = match looks.any() {
        None => Some("no card has answered yet".to_owned()),
        Some(at) if at.elapsed() > NO_ANSWER => Some(format!("the last answer of any card came {}", ago(at))),
        Some(_) => None,
    };
    Condition { name: "cards read", missing, note }
}

/// Whether the GPU pools are known. While they cannot be read, the last known ones hold, which is no reason to take the
/// node out of service.
fn pools_known(reading: &Reading) -> Condition {
    let name = "GpuPools known";
    match (reading.is_known, reading.trouble.clone()) {
        (true, trouble) => Condition { name, missing: None, note: trouble.unwrap_or_default() },
        (false, trouble) => {
            let not_yet = || "the API server has not told them and the node's labels yet".to_owned();
            Condition { name, missing: Some(trouble.unwrap_or_else(not_yet)), note: String::new() }
        }
    }
}

fn registration(state: &RegistrationState) -> Option<String> {
    match state {
        RegistrationState::Waiting => Some("waiting for the kubelet".to_owned()),
        RegistrationState::Registered => None,
        RegistrationState::Refused(error) => Some(format!("the kubelet refused: {error}")),
    }
}

/// Whether the plugin has published, with the features missing in the API server.
fn slices(status: &PublishStatus) -> Condition {
    let missing = published(status);
    let note = status.last_error.clone().filter(|_| missing.is_none()).unwrap_or_default();
    Condition { name: "ResourceSlices published", missing, note }
}

/// Whether the plugin has published. An instance on standby after publishing is ready: its successor publishes.
fn published(status: &PublishStatus) -> Option<String> {
    match (status.role, status.in_sync) {
        (Role::Publishing, true) => None,
        (Role::Standby, _) if status.generation.is_some() => None,
        (Role::Standby, _) if status.last_error.is_some() => status.last_error.clone(),
        (Role::Standby, _) => Some("another instance publishes, this one has not had its turn".to_owned()),
        (Role::WaitingForHardware, _) => Some("the hardware has not been read yet".to_owned()),
        (Role::Publishing, false) => {
            Some(status.last_error.clone().unwrap_or_else(|| "being written".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_card_that_hangs_is_told_and_only_silence_of_all_is_red() {
        let none = cards_read(&Looks::default());
        assert_eq!((none.missing.is_some(), &*none.note), (true, "no complete look yet"));
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let card = |bus| tessera_api::PciBusId::new(0, bus, 0, 0).unwrap();
        let mut looks = Looks { complete: Some(ago(600)), ..Looks::default() };
        looks.cards = [(card(1), ago(600)), (card(2), ago(20))].into();
        looks.hanging = [card(1)].into();
        let one = cards_read(&looks);
        assert_eq!(one.missing, None);
        assert_eq!(one.note, "last complete look 600 s ago; a call of the driver hangs about 0000:01:00.0");
        looks.unknown_recoveries.insert(card(2), 23);
        let told = cards_read(&looks).note;
        assert!(
            told.ends_with("recommends recovery action 23 for 0000:02:00.0, which is not known here"),
            "{told}"
        );
        looks.unread = (1..=6).map(|number| format!("minor of card {number}: no")).collect();
        let note = cards_read(&looks).note;
        assert!(note.contains("; cannot read minor of card 4: no; and 2 more, see the log"), "{note}");
        looks.cards.insert(card(2), ago(121));
        assert_eq!(cards_read(&looks).missing.unwrap(), "the last answer of any card came 121 s ago");
    }

    #[test]
    fn missing_files_of_the_driver_are_red_and_an_unsafe_tool_is_told() {
        let state = |missing: Option<&str>, tool: Option<&str>| {
            let (missing, unsafe_tool) = (missing.map(str::to_owned), tool.map(str::to_owned));
            driver_files(&DriverFilesState { missing, unsafe_tool })
        };
        assert_eq!(state(Some("reboot"), None).missing.unwrap(), "reboot");
        let told = state(None, Some("1.17.7"));
        assert!(told.missing.is_none() && told.note.contains("nvidia-ctk 1.17.7"), "{told:?}");
    }

    #[test]
    fn pools_that_cannot_be_read_are_red_only_where_none_are_known() {
        let read = |is_known, trouble: Option<&str>| {
            let condition = pools_known(&Reading { is_known, trouble: trouble.map(str::to_owned) });
            (condition.missing.is_some(), condition.missing.unwrap_or(condition.note))
        };
        assert_eq!(read(true, None), (false, String::new()));
        assert_eq!(read(true, Some("403")), (false, "403".to_owned()));
        assert_eq!(read(false, Some("403")), (true, "403".to_owned()));
        assert!(read(false, None).0, "every instance begins like this");
    }

    #[test]
    fn each_condition_says_what_is_missing() {
        assert_eq!(registration(&RegistrationState::Registered), None);
        let refused = registration(&RegistrationState::Refused("no".to_owned()));
        assert_eq!(refused.unwrap(), "the kubelet refused: no");
        let status = |role, in_sync, last_error: Option<&str>| PublishStatus {
            role,
            in_sync,
            last_error: last_error.map(str::to_owned),
            ..PublishStatus::default()
        };
        assert_eq!(published(&status(Role::Publishing, true, None)), None);
        assert!(published(&status(Role::Standby, false, None)).is_some(), "every instance begins like this");
        let no_lock = status(Role::Standby, false, Some("no space left"));
        assert_eq!(published(&no_lock).unwrap(), "no space left");
        let superseded = PublishStatus { generation: Some(3), ..status(Role::Standby, false, None) };
        assert_eq!(published(&superseded), None);
        assert_eq!(published(&status(Role::Publishing, false, Some("403"))).unwrap(), "403");
        assert!(published(&status(Role::WaitingForHardware, false, None)).is_some());
        let left_out = slices(&status(Role::Publishing, true, Some("gate G is off")));
        assert_eq!((left_out.missing, &*left_out.note), (None, "gate G is off"));
    }
}
