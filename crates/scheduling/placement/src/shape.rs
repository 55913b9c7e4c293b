//! Identity of pods with the same request.

use sha2::{Digest, Sha256};

/// Digest of all fields read of a pod, or of its claims: equal for equal pods, small, and in need of no table. By SHA-256, so
/// nobody can write a pod counted as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId([u8; 16]);

impl ShapeId {
    /// Digest of these parts of a text, in this order.
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
