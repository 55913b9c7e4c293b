//! Whether pods with claims can start on this node now.

use tokio::sync::watch;

use crate::{
    hardware::Hardware,
    kubelet::registration::RegistrationState,
    publish::{PublishStatus, Role},
};

/// What readiness depends on.
pub struct Readiness {
    /// Whether the sockets listen.
    pub listening: watch::Receiver<bool>,
    /// What keeps them from listening, where something does.
    pub trouble: watch::Receiver<Option<String>>,
    /// What the kubelet said.
    pub registration: watch::Receiver<RegistrationState>,
    /// The driver library.
    pub hardware: Hardware,
    /// Why there is no driver library.
    pub hardware_reason: watch::Receiver<Option<String>>,
    /// What is published.
    pub published: watch::Receiver<PublishStatus>,
}

/// One of the things needed.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name.
    pub name: &'static str,
    /// Why it is not there; `None` when it is.
    pub missing: Option<String>,
}

impl Readiness {
    /// Whether the sockets listen.
    pub fn listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// All conditions, in the order in which they usually come true.
    pub fn conditions(&self) -> Vec<Condition> {
        let trouble = || self.trouble.borrow().clone().unwrap_or_else(|| "they are not there yet".to_owned());
        let listening = (!self.listening()).then(trouble);
        let hardware = match &*self.hardware.borrow() {
            Some(_) => None,
            None => Some(self.hardware_reason.borrow().clone().unwrap_or_else(|| "not read yet".to_owned())),
        };
        vec![
            Condition { name: "sockets", missing: listening },
            Condition { name: "hardware", missing: hardware },
            Condition {
                name: "registered with the kubelet",
                missing: registration(&self.registration.borrow()),
            },
            Condition { name: "ResourceSlices published", missing: published(&self.published.borrow()) },
        ]
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").field("conditions", &self.conditions()).finish()
    }
}

fn registration(state: &RegistrationState) -> Option<String> {
    match state {
        RegistrationState::Waiting => Some("waiting for the kubelet".to_owned()),
        RegistrationState::Registered => None,
        RegistrationState::Refused(error) => Some(format!("the kubelet refused: {error}")),
    }
}

/// An instance that has published and is on standby now is ready: its successor publishes.
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
    }
}
