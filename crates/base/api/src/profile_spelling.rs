use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes of the longest spelling: the rest of a device name after an address, a placement and `-mps`.
const MAX_BYTES: usize = 24;

/// Spelling of a MIG profile's name inside a device name, which is a DNS label: `1g.10gb` as `1g10gb`,
/// `1g.10gb+me` as `1g10gb-me`, `1g.24gb-me` as `1g24gb-no-me`, `1g.24gb+me.all` as `1g24gb-me-all`, `1c.3g.40gb` as
/// `1c3g40gb`.
///
/// No two profiles of a card have the same spelling. To find the profile of a device name, spell the names
/// given by NVML and compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileSpelling(String);

/// Why a text is not the name, or not the spelling, of a MIG profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileSpellingError {
    /// Not a name as NVML writes them.
    #[error("{0:?} is not the name of a MIG profile: expected one as in 1g.10gb, 1g.10gb+me or 1c.3g.40gb")]
    Name(String),
    /// Not a spelling as in device names.
    #[error(
        "{0:?} is not how this driver spells a MIG profile: expected one as in 1g10gb, 1g10gb-me or 1c3g40gb"
    )]
    Spelling(String),
}

impl ProfileSpelling {
    /// Spells the name given to a profile by NVML, as in `1g.10gb+me`.
    ///
    /// # Errors
    /// [`ProfileSpellingError::Name`] for anything else.
    pub fn of_profile(name: &str) -> Result<Self, ProfileSpellingError> {
        spell(name).ok_or_else(|| ProfileSpellingError::Name(excerpt(name)))
    }

    /// The spelling of compute instances of `compute_slices`, taking only part of a GPU instance of this profile:
    /// `1c3g40gb` of `3g40gb`.
    ///
    /// # Errors
    /// [`ProfileSpellingError::Spelling`] where this is such a spelling already, or the answer would be too long.
    pub fn with_compute_slices(&self, compute_slices: u32) -> Result<Self, ProfileSpellingError> {
        format!("{compute_slices}c{self}").parse()
    }

    /// The spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compute slices: of `1g10gb` and of `1c3g40gb` 1.
    #[must_use]
    pub fn compute_slices(&self) -> u32 {
        self.numbers().next().unwrap_or(0)
    }

    /// The memory in its name, in GB: of `1c3g40gb` 40.
    #[must_use]
    pub fn memory_gigabytes(&self) -> u32 {
        self.numbers().last().unwrap_or(0)
    }

    /// Whether the profile has attributes besides its size, as in `1g10gb-me`.
    #[must_use]
    pub fn has_attributes(&self) -> bool {
        self.0.contains('-')
    }

    /// The numbers of its size.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let size = self.0.split('-').next().unwrap_or_default();
        let numbers = size.split(|other: char| !other.is_ascii_digit()).filter(|digits| !digits.is_empty());
        // Saturates: `MAX_BYTES` leaves room for more digits than a u32 has.
        numbers.map(|digits| digits.parse().unwrap_or(u32::MAX))
    }
}

/// The spelling of a profile's name; `None` for other text.
fn spell(name: &str) -> Option<ProfileSpelling> {
    let end = name.find(['+', '-']).unwrap_or(name.len());
    let (size, mut attributes) = name.split_at(end);
    let mut spelling = String::with_capacity(name.len() + 3);
    // `1g.10gb`, and with a width in front `1c.3g.40gb`.
    let parts: Vec<&str> = size.split('.').collect();
    let valid = match parts[..] {
        [gpu, memory] => is_number(gpu, "g") && is_number(memory, "gb"),
        [compute, gpu, memory] => is_number(compute, "c") && is_number(gpu, "g") && is_number(memory, "gb"),
        _ => false,
    };
    if !valid {
        return None;
    }
    spelling.extend(parts);
    while let Some(sign) = attributes.chars().next() {
        let rest = &attributes[1..];
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        let (words, next) = rest.split_at(end);
        if sign == '-' {
            spelling.push_str("-no");
        }
        for word in words.split('.') {
            // `+no.me` would read as `-me`.
            if !is_word(word) || word == "no" {
                return None;
            }
            spelling.push('-');
            spelling.push_str(word);
        }
        attributes = next;
    }
    (spelling.len() <= MAX_BYTES).then_some(ProfileSpelling(spelling))
}

/// A number of at least 1 without leading zeros, followed by `unit`.
fn is_number(text: &str, unit: &str) -> bool {
    text.strip_suffix(unit).is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0')
    })
}

/// A word of lower-case letters and digits beginning with a letter. So a number after a spelling is never taken for part of
/// the spelling.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && text.starts_with(|first: char| first.is_ascii_lowercase())
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

impl fmt::Display for ProfileSpelling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ProfileSpelling {
    type Err = ProfileSpellingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ProfileSpellingError::Spelling(excerpt(text));
        let mut words = text.split('-');
        let size = words.next().ok_or_else(error)?;
        // Digits and letters take turns: 1 c 3 g 40 gb.
        let mut rest = size;
        let mut units = Vec::new();
        while !rest.is_empty() {
            let letters = rest.find(|next: char| !next.is_ascii_digit()).ok_or_else(error)?;
            let end = rest[letters..]
                .find(|next: char| next.is_ascii_digit())
                .map_or(rest.len(), |end| letters + end);
            let (number, next) = rest.split_at(end);
            let unit = &number[letters..];
            if !is_number(number, unit) {
                return Err(error());
            }
            units.push(unit);
            rest = next;
        }
        let words: Vec<&str> = words.collect();
        let valid = matches!(units[..], ["g", "gb"] | ["c", "g", "gb"])
            && words.iter().all(|word| is_word(word))
            && !words.ends_with(&["no"])
            && !words.windows(2).any(|pair| pair == ["no", "no"])
            && text.len() <= MAX_BYTES;
        if valid { Ok(Self(text.to_owned())) } else { Err(error()) }
    }
}

impl TryFrom<String> for ProfileSpelling {
    type Error = ProfileSpellingError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ProfileSpelling> for String {
    fn from(spelling: ProfileSpelling) -> Self {
        spelling.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_nvidia() {
        for (name, spelling) in [
            ("1g.5gb", "1g5gb"),
            ("1g.10gb", "1g10gb"),
            ("1g.10gb+me", "1g10gb-me"),
            ("1g.24gb-me", "1g24gb-no-me"),
            ("1g.24gb+gfx", "1g24gb-gfx"),
            ("2g.48gb+me.all", "2g48gb-me-all"),
            ("7g.141gb", "7g141gb"),
            ("1c.3g.40gb", "1c3g40gb"),
            ("1c.2g.12gb+me", "1c2g12gb-me"),
            ("1g.24gb+me-gfx", "1g24gb-me-no-gfx"),
        ] {
            let spelled = ProfileSpelling::of_profile(name).unwrap();
            assert_eq!(spelled.as_str(), spelling);
            assert_eq!(spelling.parse(), Ok(spelled));
        }
        let narrow = ProfileSpelling::of_profile("3g.40gb").unwrap().with_compute_slices(1).unwrap();
        assert_eq!(
            (narrow.compute_slices(), narrow.memory_gigabytes(), narrow.has_attributes()),
            (1, 40, false)
        );
        let with_engines = ProfileSpelling::of_profile("2g.48gb+me.all").unwrap();
        assert_eq!((with_engines.compute_slices(), with_engines.memory_gigabytes()), (2, 48));
        assert!(with_engines.has_attributes());
        assert_eq!(narrow, ProfileSpelling::of_profile("1c.3g.40gb").unwrap());
        assert!(narrow.with_compute_slices(1).is_err());
    }

    #[test]
    fn other_names_are_refused() {
        for text in [
            "",
            "g.10gb",
            "1g",
            "1g.10",
            "1g10gb",
            "01g.10gb",
            "1g.010gb",
            "0g.10gb",
            "1g.10gb+",
            "1g.10gb+ME",
            "1g.10gb+no.me",
            "1g.10gb+me.",
            "1g.10gb+6",
            "2g.1c.10gb",
            "MIG 1g.10gb",
            "1g.10gb+a.very.long.attribute",
            "1g.10gb ",
            "1g.10gb+é",
        ] {
            assert!(ProfileSpelling::of_profile(text).is_err(), "{text:?}");
        }
        for text in
            ["", "1g", "1g10gb-", "1g.10gb", "1g10gb-6", "1g10gb-no", "1g10gb-no-no-me", "10gb1g", "1g10gbé"]
        {
            assert!(text.parse::<ProfileSpelling>().is_err(), "{text:?}");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        let size =
            ("([1-9]c\\.)?[1-9]g\\.[1-9][0-9]{0,2}gb", prop::collection::vec("[+-](me|gfx|all|x9)", 0..3));
        size.prop_map(|(size, attributes)| size + &attributes.concat())
    }

    proptest! {
        #[test]
        fn different_names_have_different_spellings(one in name(), other in name()) {
            let spell = |name: &str| ProfileSpelling::of_profile(name);
            if let (Ok(one_spelled), Ok(other_spelled)) = (spell(&one), spell(&other)) {
                prop_assert_eq!(one_spelled == other_spelled, one == other);
                prop_assert_eq!(one_spelled.as_str().parse(), Ok(one_spelled.clone()));
                prop_assert!(crate::limits::is_dns_label(one_spelled.as_str()));
            }
        }

        #[test]
        fn no_text_panics(text in "[0-9cgb.+me-]{0,20}|.*") {
            let _ = ProfileSpelling::of_profile(&text);
            if let Ok(spelling) = text.parse::<ProfileSpelling>() {
                prop_assert_eq!(spelling.to_string(), text);
            }
        }
    }
}
