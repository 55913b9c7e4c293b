//! Slurm's lists of hosts: `a,b-[1-3,07]`.

use thiserror::Error;

/// Names in one list at most: more is a mistake in a range.
const LONGEST: usize = 65_536;

/// Why a list of hosts cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HostListError {
    #[error("the host list {0} has a [ without its ], or the reverse")]
    Bracket(String),
    #[error("the host list {0} has a range that is none: `{1}`")]
    Range(String, String),
    #[error("the host list {0} has more than {LONGEST} hosts")]
    Long(String),
}

/// The names of a list, in its order. Digits keep their zeros: `n[08-10]` is n08, n09, n10.
pub fn expand(list: &str) -> Result<Vec<String>, HostListError> {
    let mut names = Vec::new();
    for part in split(list)? {
        expand_one(list, part, &mut names)?;
    }
    Ok(names)
}

/// The parts between commas outside brackets.
fn split(list: &str) -> Result<Vec<&str>, HostListError> {
    let mut parts = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' | ']' if inside == (character == '[') => return Err(HostListError::Bracket(list.to_owned())),
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(HostListError::Bracket(list.to_owned()));
    }
    parts.push(&list[start..]);
    Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect())
}

/// A part without commas outside brackets; all its brackets, from the left.
fn expand_one(list: &str, part: &str, names: &mut Vec<String>) -> Result<(), HostListError> {
    let Some((before, rest)) = part.split_once('[') else {
        if names.len() >= LONGEST {
            return Err(HostListError::Long(list.to_owned()));
        }
        names.push(part.to_owned());
        return Ok(());
    };
    let (ranges, after) = rest.split_once(']').ok_or_else(|| HostListError::Bracket(list.to_owned()))?;
    for range in ranges.split(',') {
        let wrong = || HostListError::Range(list.to_owned(), range.to_owned());
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(wrong());
        }
        if to - from >= LONGEST {
            return Err(HostListError::Long(list.to_owned()));
        }
        for number in from..=to {
            expand_one(list, &format!("{before}{number:0width$}{after}", width = first.len()), names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        let table = [
            ("a", "a"),
            ("a,b", "a b"),
            ("lx[0-2,7]", "lx0 lx1 lx2 lx7"),
            ("n[08-10].rack,m", "n08.rack n09.rack n10.rack m"),
            ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
            ("train-0.train,train-1.train", "train-0.train train-1.train"),
            ("", ""),
        ];
        for (list, names) in table {
            assert_eq!(expand(list).unwrap().join(" "), names, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in ["a[1", "a]1", "a[[1]]"] {
            assert!(matches!(expand(list), Err(HostListError::Bracket(_))), "{list}");
        }
        for list in ["a[x]", "a[3-1]", "a[]"] {
            assert!(matches!(expand(list), Err(HostListError::Range(..))), "{list}");
        }
        assert!(matches!(expand("a[1-99999999999]"), Err(HostListError::Long(_))));
        assert!(matches!(expand("a[1-9999]b[1-9999]"), Err(HostListError::Long(_))));
    }
}
