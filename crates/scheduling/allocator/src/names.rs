//! Interned text: each distinct text is stored once and represented by four bytes.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A text in one [`Names`] table; not valid in another table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub(crate) u32);

/// A table of texts. The table only grows: replace the table together with its inventory.
#[derive(Debug, Default)]
pub struct Names {
    text: String,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
    /// The name of a text, new or known.
    pub fn intern(&mut self, text: &str) -> Name {
        let hash = self.hasher.hash_one(text);
        let (all, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        let found = self.table.find(hash, |index| slice(all, ends, *index) == text);
        if let Some(index) = found {
            return Name(*index);
        }
        let index = self.ends.len() as u32;
        self.table.insert_unique(hash, index, |index| hasher.hash_one(slice(all, ends, *index)));
        self.text.push_str(text);
        self.ends.push(self.text.len());
        Name(index)
    }

    /// The name of a text interned before.
    pub fn find(&self, text: &str) -> Option<Name> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |index| slice(&self.text, &self.ends, *index) == text).map(|index| Name(*index))
    }

    /// The text of a name.
    pub fn text(&self, name: Name) -> &str {
        slice(&self.text, &self.ends, name.0)
    }

    /// Frees spare capacity.
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Size of the table, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.table.capacity() * (size_of::<u32>() + 1)
    }
}

fn slice<'t>(text: &'t str, ends: &[usize], index: u32) -> &'t str {
    let index = index as usize;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &text[start..ends[index]]
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn a_text_has_one_name() {
        let mut names = Names::default();
        let all: Vec<_> = (0..1000).map(|number| names.intern(&format!("n{number}"))).collect();
        for (number, name) in all.iter().enumerate() {
            assert_eq!(names.text(*name), format!("n{number}"));
            assert_eq!(names.intern(&format!("n{number}")), *name);
        }
        assert_eq!(names.find("m"), None);
        let empty = names.intern("");
        assert_eq!(names.text(empty), "");
    }
}
