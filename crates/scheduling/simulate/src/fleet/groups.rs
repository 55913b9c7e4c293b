//! Groups of identical nodes, as users write them: `10xdgx-h100`, `2xhgx-a100-80gb,cards=4,mig=on`.

use std::collections::BTreeMap;
use std::str::FromStr;

use tessera_api::Quantity;
use tessera_hardware::{FactsError, Hardware};

/// Most nodes of a fleet.
pub const MOST_NODES: usize = 2_000;

/// Default thousandths of a core for each card of a node.
const CPU_MILLI: u64 = 16_000;

/// Default MiB for each card of a node.
const MEMORY_MIB: u64 = 128 << 10;

/// Identical nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeGroup {
    /// Number of nodes.
    pub count: usize,
    /// Name of the machine as given.
    pub machine: String,
    /// The machine's hardware.
    pub hardware: Hardware,
    /// Number of cards, the first ones of the machine; `None` for all.
    pub cards: Option<usize>,
    /// Whether MIG mode is on. On Ampere this decides whether whole cards or partitions are available.
    pub mig_mode: bool,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// MiB.
    pub memory_mib: u64,
    /// Labels of the nodes.
    pub labels: BTreeMap<String, String>,
}

/// Why a text is not a group of nodes.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Invalid syntax.
    #[error(
        "{0:?} is not of the form COUNTxMACHINE[,cards=N][,mig=on|off][,cpu=CORES][,memory=BYTES][,label:KEY=VALUE], as in 10xdgx-h100"
    )]
    Form(String),
    /// Unknown machine.
    #[error(transparent)]
    Machine(#[from] FactsError),
    /// An invalid value.
    #[error("{group}: {key} {reason}")]
    Value {
        /// The group's text.
        group: String,
        /// The setting.
        key: &'static str,
        /// The problem.
        reason: String,
    },
}

impl FromStr for NodeGroup {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        let form = || GroupError::Form(text.to_owned());
        let mut parts = text.split(',');
        let (count, machine) = parts.next().and_then(|first| first.split_once('x')).ok_or_else(form)?;
        let count: usize = count.parse().map_err(|_| form())?;
        let value = |key, reason: String| GroupError::Value { group: text.to_owned(), key, reason };
        if !(1..=MOST_NODES).contains(&count) {
            return Err(value("the number of nodes", format!("must be from 1 to {MOST_NODES}")));
        }
        let hardware = tessera_hardware::machine_called(machine)?;
        let (topology, _) = tessera_hardware::topology(&hardware.topology)?;
        let (board, _) = tessera_hardware::board(&hardware.board)?;
        let mut group = NodeGroup {
            count,
            machine: machine.to_owned(),
            hardware,
            cards: None,
            mig_mode: false,
            cpu_milli: 0,
            memory_mib: 0,
            labels: BTreeMap::new(),
        };
        let most = topology.cards();
        for part in parts {
            let (key, text) = part.split_once('=').ok_or_else(form)?;
            match key {
                "cards" => {
                    let cards = text.parse().ok().filter(|cards| (1..=most).contains(cards));
                    group.cards =
                        Some(cards.ok_or_else(|| value("cards", format!("must be from 1 to {most}")))?);
                }
                "mig" => {
                    group.mig_mode = match text {
                        "on" => true,
                        "off" => false,
                        _ => return Err(value("mig", "must be on or off".to_owned())),
                    };
                    if group.mig_mode && board.mig_model.is_none() {
                        let reason = format!("cannot be on: {} has no MIG", board.name);
                        return Err(value("mig", reason));
                    }
                }
                "cpu" => group.cpu_milli = amount(text, 1000).map_err(|reason| value("cpu", reason))?,
                "memory" => {
                    let bytes = amount(text, 1).map_err(|reason| value("memory", reason))?;
                    group.memory_mib = bytes >> 20;
                    if group.memory_mib == 0 {
                        return Err(value("memory", "must be at least 1Mi".to_owned()));
                    }
                }
                _ => {
                    let key = key.strip_prefix("label:").filter(|key| !key.is_empty()).ok_or_else(form)?;
                    group.labels.insert(key.to_owned(), text.to_owned());
                }
            }
        }
        let cards = group.cards.unwrap_or(most) as u64;
        if group.cpu_milli == 0 {
            group.cpu_milli = cards * CPU_MILLI;
        }
        if group.memory_mib == 0 {
            group.memory_mib = cards * MEMORY_MIB;
        }
        Ok(group)
    }
}

/// A quantity above 0, multiplied by `factor` and rounded down.
pub(super) fn amount(text: &str, factor: i128) -> Result<u64, String> {
    let quantity = Quantity::parse(text).map_err(|_| format!("is {text:?}, not a quantity"))?;
    let amount = quantity.nanos().saturating_mul(factor) / 1_000_000_000;
    // More than any node has, and small enough for sums not to overflow.
    u64::try_from(amount)
        .ok()
        .filter(|amount| (1..1 << 50).contains(amount))
        .ok_or_else(|| format!("is {text}; it must be above 0, and no more than any node has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read() {
        let group: NodeGroup = "10xdgx-h100".parse().unwrap();
        assert_eq!((group.count, group.hardware.board.as_str()), (10, "h100-sxm5-80gb"));
        assert_eq!((group.cards, group.cpu_milli, group.memory_mib), (None, 128_000, 1 << 20));
        let group: NodeGroup =
            "2xhgx-a100-80gb,cards=3,mig=on,cpu=96,memory=1Ti,label:example.com/pool=a".parse().unwrap();
        assert_eq!(
            (group.cards, group.mig_mode, group.cpu_milli, group.memory_mib),
            (Some(3), true, 96_000, 1 << 20)
        );
        assert_eq!(group.labels["example.com/pool"], "a");
    }

    #[test]
    fn what_is_no_group_is_said() {
        for (text, part) in [
            ("dgx-h100", "COUNTxMACHINE"),
            ("-1xdgx-h100", "COUNTxMACHINE"),
            ("0xdgx-h100", "from 1 to"),
            ("100000xdgx-h100", "from 1 to"),
            ("1xdgx-h1000", "dgx-h100"),
            ("1xdgx-h100,cards=9", "from 1 to 8"),
            ("1xdgx-h100,cards=0", "from 1 to 8"),
            ("1xt4,mig=on", "no MIG"),
            ("1xdgx-h100,mig=yes", "on or off"),
            ("1xdgx-h100,cpu=-1", "above 0"),
            ("1xdgx-h100,memory=1e40", "no more"),
            ("1xdgx-h100,memory=lots", "not a quantity"),
            ("1xdgx-h100,rack=1", "COUNTxMACHINE"),
            ("1xdgx-h100,", "COUNTxMACHINE"),
        ] {
            let error = text.parse::<NodeGroup>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
