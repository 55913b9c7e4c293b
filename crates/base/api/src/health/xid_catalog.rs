//! NVIDIA's catalog of XIDs, as a table of this crate: `xid_catalog.tsv` names its source and date.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{HealthEffect, Recovery};

const TEXT: &str = include_str!("xid_catalog.tsv");

static CATALOG: LazyLock<BTreeMap<u64, XidEntry>> = LazyLock::new(|| lines().filter_map(parse).collect());

/// The catalog's entry for an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct XidEntry {
    /// The immediate action, in NVIDIA's word.
    action: &'static str,
    /// The default effect; `None` to use the effect of the class.
    pub(super) effect: Option<HealthEffect>,
}

impl XidEntry {
    /// The entry of this XID; `None` where the catalog has no action for it.
    pub(super) fn of(xid: u64) -> Option<Self> {
        CATALOG.get(&xid).copied()
    }

    /// The recovery.
    pub(super) fn recovery(self) -> Recovery {
        match self.action {
            "RESTART_APP" | "IGNORE" | "INFORMATIONAL" | "XID_154" | "WORKFLOW_XID_45" => Recovery::None,
            "RESTART_BM" | "RESTART_VM" => Recovery::Reboot,
            "CHECK_MECHANICALS" | "CHECK_UVM" | "CONTACT_SUPPORT" | "UPDATE_SWFW" => Recovery::Catalog,
            _ => Recovery::Reset,
        }
    }
}

/// Date of the catalog, as `2026-11-27`.
pub(super) fn date() -> &'static str {
    TEXT.lines().find_map(|line| line.strip_prefix("# date: ")).unwrap_or_default()
}

fn lines() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter(|line| !line.starts_with('#'))
}

fn parse(line: &'static str) -> Option<(u64, XidEntry)> {
    let mut fields = line.split('\t');
    let (xid, action, effect) = (fields.next()?.parse().ok()?, fields.next()?, fields.next()?);
    let effect = match effect {
        "-" => None,
        "Off" => Some(HealthEffect::Off),
        "Informational" => Some(HealthEffect::Informational),
        _ => return None,
    };
    fields.next().is_none().then_some((xid, XidEntry { action, effect }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_catalog_is_read() {
        let read: Vec<(u64, XidEntry)> =
            lines().map(|line| parse(line).unwrap_or_else(|| panic!("{line}"))).collect();
        assert!(read.is_sorted_by(|one, next| one.0 < next.0), "by number, each once");
        assert!(read.len() > 100 && date().parse::<jiff::civil::Date>().is_ok(), "{}", date());
    }

    #[test]
    fn what_needs_no_reset_keeps_no_claims_away_and_what_needs_one_does() {
        for (xid, entry) in CATALOG.iter() {
            let spared = entry.effect.is_some();
            assert_eq!(spared, entry.recovery() == Recovery::None, "{xid} {}", entry.action);
        }
        let action = |xid| XidEntry::of(xid).map(|entry| entry.action);
        assert_eq!(
            [69, 121, 109, 79].map(action),
            ["RESTART_APP", "IGNORE", "RESET_GPU", "RESTART_BM"].map(Some)
        );
        assert_eq!([5, 87, 171, 100_000].map(action), [None; 4]);
    }
}
