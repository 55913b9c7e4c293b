//! Ids of hypothetical shares: they only need to differ.

use tessera_cluster::Asker;

/// The id of a share.
pub fn share_id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// An [`Asker`] with such ids.
pub fn asker() -> Asker {
    let mut shares = 0;
    Asker::new(move || {
        shares += 1;
        share_id(shares)
    })
}
