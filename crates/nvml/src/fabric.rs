use std::fmt;

/// The NVLink fabric a card belongs to (`nvmlDeviceGetGpuFabricInfoV`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fabric {
    /// How far the card's registration with the fabric manager is.
    pub state: FabricState,
    /// `nvmlReturn_t` of the registration; 0 is success. Means something once the state is
    /// [`FabricState::Completed`].
    pub status: u32,
    /// The fabric. All zero where no fabric manager spans machines.
    pub cluster: ClusterUuid,
    /// The part of the fabric within which cards reach each other.
    pub clique: u32,
}

/// How far a card's registration with its fabric manager is (`nvmlGpuFabricState_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FabricState {
    /// The card has no fabric.
    NotSupported,
    /// Not begun: no fabric manager has been seen.
    NotStarted,
    /// Under way.
    InProgress,
    /// Done; [`Fabric::status`] says with what result.
    Completed,
}

/// The name of one NVLink fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterUuid(
    /// Its bytes, in the order of the text form.
    pub [u8; 16],
);

impl Fabric {
    /// The card is a member of the fabric: registered, with success.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.state == FabricState::Completed && self.status == 0
    }

    /// The fabric spans machines and has a name.
    #[must_use]
    pub fn has_cluster(&self) -> bool {
        self.cluster != ClusterUuid::default()
    }
}

impl FabricState {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => FabricState::NotSupported,
            1 => FabricState::NotStarted,
            2 => FabricState::InProgress,
            3 => FabricState::Completed,
            _ => return None,
        })
    }
}

/// As `nvidia-smi` writes it: `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
impl fmt::Display for ClusterUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let separator = if matches!(position, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_uuid_text() {
        let bytes = std::array::from_fn(|position| u8::try_from(position).unwrap() * 0x11);
        assert_eq!(ClusterUuid(bytes).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_failed_registration_is_no_membership() {
        let fabric =
            Fabric { state: FabricState::Completed, status: 0, cluster: ClusterUuid([1; 16]), clique: 1 };
        assert!(fabric.is_joined());
        assert!(!Fabric { status: 999, ..fabric }.is_joined());
        assert!(!Fabric { state: FabricState::InProgress, ..fabric }.is_joined());
    }
}
