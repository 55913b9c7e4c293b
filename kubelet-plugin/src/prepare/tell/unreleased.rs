//! Logs each reason of an ended claim for keeping its devices once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Why ended claims keep their devices, by UID: each reason is logged once, although release is retried while others wait.
#[derive(Debug, Default)]
pub(in crate::prepare) struct Unreleased(Mutex<BTreeMap<String, String>>);

impl Unreleased {
    /// Whether this trouble differs from the last one with this claim. Notes the trouble.
    pub fn is_news(&self, uid: &str, trouble: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(uid.to_owned(), trouble.to_owned()).as_deref() != Some(trouble)
    }

    pub fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_news_once_until_it_changes_or_ends() {
        let unreleased = Unreleased::default();
        let is_news = |uid, trouble| unreleased.is_news(uid, trouble);
        assert_eq!([is_news("a", "busy"), is_news("a", "busy"), is_news("b", "busy")], [true, false, true]);
        assert_eq!([is_news("a", "lost"), is_news("a", "lost"), is_news("a", "busy")], [true, false, true]);
        unreleased.forget("a");
        assert_eq!([is_news("a", "busy"), is_news("b", "busy")], [true, false]);
    }
}
