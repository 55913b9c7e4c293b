//! Data files with a source for every fact.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Source of each fact, by the fact's name.
pub type Sources = BTreeMap<String, String>;

/// Why a data file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// No data file of this name.
    #[error("no {kind} is called {name:?}; there are: {known}")]
    Unknown {
        /// `machine`, `board` or `topology`.
        kind: &'static str,
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A data file is not of the expected form.
    #[error("data file of {file}: {source}")]
    Malformed {
        /// The data file.
        file: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The facts of a file contradict each other.
    #[error("data file {file}: {problem}")]
    Inconsistent {
        /// The data file.
        file: String,
        /// The contradiction.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    facts: Vec<Group>,
}

/// Facts of one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    source: String,
    values: Map<String, Value>,
}

/// Reads the facts of one file, whose groups each name where their facts were found.
///
/// # Errors
/// When the file is malformed, or two sources give one fact.
pub fn merge<T: DeserializeOwned>(file: &str, text: &str) -> Result<(T, Sources), FactsError> {
    let malformed = |source| FactsError::Malformed { file: file.to_owned(), source };
    let groups: File = serde_json::from_str(text).map_err(malformed)?;
    let mut merged = Map::new();
    let mut sources = Sources::new();
    for group in groups.facts {
        for (name, value) in group.values {
            if merged.insert(name.clone(), value).is_some() {
                return Err(FactsError::Inconsistent {
                    file: file.to_owned(),
                    problem: format!("{name} is given twice; keep the better source"),
                });
            }
            sources.insert(name, group.source.clone());
        }
    }
    Ok((serde_json::from_value(Value::Object(merged)).map_err(malformed)?, sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Two {
        a: u32,
        b: Option<u32>,
    }

    #[test]
    fn facts_of_several_sources_become_one_thing() {
        let text = r#"{"facts":[{"source":"one","values":{"a":1}},{"source":"two","values":{"b":2}}]}"#;
        let (two, sources) = merge::<Two>("two", text).expect("well formed");
        assert_eq!(two, Two { a: 1, b: Some(2) });
        assert_eq!(sources["b"], "two");
    }

    #[test]
    fn a_fact_given_twice_is_refused() {
        let text = r#"{"facts":[{"source":"one","values":{"a":1}},{"source":"two","values":{"a":2}}]}"#;
        assert!(matches!(merge::<Two>("two", text), Err(FactsError::Inconsistent { .. })));
    }
}
