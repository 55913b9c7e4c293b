//! Checks the kubelet's name of a claim before use in a path.

use tessera_api::limits::{is_dns_label, is_dns_subdomain};

use tessera_journal::ClaimRecord;

use crate::prepare::{ClaimReference, PrepareError};

/// Longest accepted UID, in bytes; the UID becomes part of file and CDI names. Kubernetes uses UUIDs of 36 bytes.
const LONGEST_UID: usize = 128;

/// Refuses a reference unsafe in a path or a request.
pub(in crate::prepare) fn check(claim: &ClaimReference) -> Result<(), PrepareError> {
    let refuse =
        |what, value: &str| Err(PrepareError::Reference { what, value: value.chars().take(80).collect() });
    if !is_identifier(&claim.uid) {
        return refuse("uid", &claim.uid);
    }
    if !is_dns_label(&claim.namespace) {
        return refuse("namespace", &claim.namespace);
    }
    if !is_dns_subdomain(&claim.name) {
        return refuse("name", &claim.name);
    }
    Ok(())
}

/// The claim of a record.
pub(in crate::prepare) fn of_record(record: &ClaimRecord) -> ClaimReference {
    let (namespace, name, uid) = (record.namespace.clone(), record.name.clone(), record.uid.clone());
    ClaimReference { namespace, name, uid }
}

/// Whether a text looks like a UID or share id of Kubernetes: letters, digits and dashes.
pub(in crate::prepare) fn is_identifier(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric();
    text.len() <= LONGEST_UID
        && text.bytes().next().is_some_and(letter)
        && text.bytes().all(|byte| letter(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_a_directory() {
        for uid in ["", "..", "../x", "a/b", "-a", "a b", "a\0", "ä", &"a".repeat(129)] {
            assert!(!is_identifier(uid), "{uid:?}");
        }
        assert!(is_identifier("0b4e7d3c-8d0c-4b59-9f61-3b1f2f3a4c5d"));
    }

    #[test]
    fn each_part_is_checked() {
        let good = ClaimReference { namespace: "ns".into(), name: "a.b".into(), uid: "u-1".into() };
        check(&good).unwrap();
        for bad in [
            ClaimReference { namespace: "../ns".into(), ..good.clone() },
            ClaimReference { name: "a/b".into(), ..good.clone() },
            ClaimReference { uid: "../u".into(), ..good },
        ] {
            assert!(matches!(check(&bad), Err(PrepareError::Reference { .. })), "{bad}");
        }
    }
}
