//! What pods have in common that ask for the same.

use sha2::{Digest, Sha256};

/// The digest of a text that says all that is read of a pod, or of its claims: equal for those that are alike, small, and kept in no table.
/// Nobody can write a pod that counts as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId([u8; 16]);

impl ShapeId {
    /// Of these parts of a text, in this order.
    pub(crate) fn of<'t>(parts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&digest.finalize()[..16]);
        ShapeId(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        assert_eq!(ShapeId::of(["ab", "c"]), ShapeId::of(["ab", "c"]));
        assert_ne!(ShapeId::of(["ab", "c"]), ShapeId::of(["a", "bc"]));
        assert_ne!(ShapeId::of(["ab"]), ShapeId::of(["ab", ""]));
    }
}
