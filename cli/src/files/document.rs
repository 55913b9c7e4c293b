//! One document of a file, with line numbers.
//!
//! A tree of our own instead of `serde_json::Value`, so messages about a wrong value can name its line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::FileError;

/// A document: its content and its position.
#[derive(Debug)]
pub struct Document<'f> {
    /// The path as given.
    pub file: &'f str,
    /// Its number in the file, from 1.
    pub number: usize,
    /// First line in the file, from 1.
    pub first_line: usize,
    root: Spanned<Node>,
}

#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

/// A step into a document.
#[derive(Debug, Clone)]
pub enum Step {
    /// Into a map.
    Key(String),
    /// Into a list.
    Index(usize),
}

impl Document<'_> {
    /// An error at a line of the file.
    pub fn error(&self, line: usize, reason: impl Into<String>) -> FileError {
        FileError::Document { file: self.file.to_owned(), document: self.number, line, reason: reason.into() }
    }

    /// The content, without positions.
    pub fn value(&self) -> Value {
        self.root.value.to_json()
    }

    /// Line in the file of the value at the path, or of its nearest ancestor.
    pub fn line_of(&self, path: &[Step]) -> usize {
        let mut node = &self.root;
        let mut line = node.referenced.line();
        for step in path {
            let next = match (&node.value, step) {
                (Node::Map(entries), Step::Key(key)) => {
                    entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
                }
                (Node::List(items), Step::Index(index)) => items.get(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
            if node.referenced.line() > 0 {
                line = node.referenced.line();
            }
        }
        self.first_line + (line.max(1) as usize - 1)
    }
}

impl Node {
    fn to_json(&self) -> Value {
        match self {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Node::Map(entries) => {
                Value::Object(entries.iter().map(|(key, item)| (key.clone(), item.value.to_json())).collect())
            }
        }
    }
}

fn without_places(value: Value) -> Spanned<Node> {
    let node = match value {
        Value::Array(items) => Node::List(items.into_iter().map(without_places).collect()),
        Value::Object(entries) => {
            Node::Map(entries.into_iter().map(|(key, value)| (key, without_places(value))).collect())
        }
        scalar => Node::Scalar(scalar),
    };
    Spanned::new(node, serde_saphyr::Location::UNKNOWN, serde_saphyr::Location::UNKNOWN)
}

/// Stack size in bytes: many times the need of a document of the largest allowed depth.
const STACK: usize = 64 << 20;

/// The documents of a file. Empty ones are left out, but counted.
pub fn split<'f>(text: &str, file: &'f str) -> Result<Vec<Document<'f>>, FileError> {
    let failed = |source| FileError::Read { file: file.to_owned(), source };
    // The deserializer is recursive, and the caller's stack may be small.
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || read(text, file));
        match reader.map_err(failed)?.join() {
            Ok(documents) => documents,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read<'f>(text: &str, file: &'f str) -> Result<Vec<Document<'f>>, FileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let mut number = 0;
    for (first_line, part) in parts(text) {
        if part.trim_start().starts_with('{') {
            json(part, first_line, file, &mut number, &mut documents)?;
            continue;
        }
        // Text before the first marker is a document only if not empty.
        let empty = part.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---" || line.starts_with("--- #")
        });
        if !(empty && first_line == 1 && !part.starts_with("---")) {
            number += 1;
        }
        if !empty {
            documents.push(yaml(part, first_line, file, number)?);
        }
    }
    Ok(documents)
}

/// The text, split at document markers, allowed by YAML only at the start of a line; each part with its first line.
fn parts(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let rest = line.strip_prefix("---");
        if offset > 0 && rest.is_some_and(|rest| rest.trim().is_empty() || rest.starts_with([' ', '\t'])) {
            parts.push((start_line, &text[start..offset]));
            (start, start_line) = (offset, index + 1);
        }
        offset += line.len();
    }
    parts.push((start_line, &text[start..]));
    parts
}

/// One or more concatenated JSON objects, accepted by `kubectl` too.
fn json<'f>(
    part: &str,
    first_line: usize,
    file: &'f str,
    number: &mut usize,
    documents: &mut Vec<Document<'f>>,
) -> Result<(), FileError> {
    let mut stream = serde_json::Deserializer::from_str(part).into_iter::<IgnoredAny>();
    let mut begin = 0;
    while let Some(found) = stream.next() {
        *number += 1;
        let end = stream.byte_offset();
        if let Err(error) = found {
            // YAML's flow style begins like JSON.
            if begin == 0
                && let Ok(document) = yaml(part, first_line, file, *number)
            {
                documents.push(document);
                return Ok(());
            }
            return Err(FileError::Document {
                file: file.to_owned(),
                document: *number,
                line: first_line + error.line().max(1) - 1,
                reason: format!("not JSON: {error}"),
            });
        }
        let whole = &part[begin..end];
        let text = whole.trim_start();
        let skipped = &part[..begin + (whole.len() - text.len())];
        let line = first_line + skipped.matches('\n').count();
        // Parsed as YAML, for line numbers; as JSON where only JSON is valid.
        let document = match yaml(text, line, file, *number) {
            Ok(document) => document,
            Err(error) => match serde_json::from_str::<Value>(text) {
                Ok(value) => {
                    Document { file, number: *number, first_line: line, root: without_places(value) }
                }
                Err(_) => return Err(error),
            },
        };
        documents.push(document);
        begin = end;
    }
    Ok(())
}

fn yaml<'f>(part: &str, first_line: usize, file: &'f str, number: usize) -> Result<Document<'f>, FileError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // A file of the allowed size may have any number of nodes; aliases stay limited, so nothing expands.
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_documents: 1,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Spanned<Node>>(part, options)
        .map(|root| Document { file, number, first_line, root })
        .map_err(|error| {
            let line = error.location().map_or(1, |location| location.line().max(1) as usize);
            let text = error.without_snippet().to_string();
            // The position in the message counts from the document's first line and would mislead.
            let text = text.split(" at line ").next().unwrap_or(&text);
            // The library's text about its limits is for programmers.
            let text = if text.starts_with("budget breached") {
                "too many aliases, levels or values; write the aliases out, or split the file"
            } else {
                text
            };
            FileError::Document {
                file: file.to_owned(),
                document: number,
                line: first_line + line - 1,
                reason: format!("not YAML: {text}"),
            }
        })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        if !value.is_finite() {
            return Err(E::custom("not a JSON number; quote it if it is text"));
        }
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map: Vec<(String, Spanned<Node>)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some((key, value)) = entries.next_entry::<String, _>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("{key:?} is given twice")));
            }
            map.push((key, value));
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_know_their_lines() {
        let text = "# head\n---\na: 1\n---\n# empty\n--- # third\nb:\n- c\n- d: [1, x]\n";
        let documents = split(text, "f.yaml").unwrap();
        assert_eq!(documents.iter().map(|document| document.number).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(documents[0].value(), json!({ "a": 1 }));
        assert_eq!(documents[1].value(), json!({ "b": ["c", { "d": [1, "x"] }] }));
        let path = [Step::Key("b".into()), Step::Index(1), Step::Key("d".into())];
        assert_eq!(documents[1].line_of(&path), 9);
    }

    #[test]
    fn json_streams_and_what_only_json_allows() {
        let documents = split("{\"a\": \"\\ud83d\\ude00\"}\n{\n  \"b\": 2}", "f.json").unwrap();
        assert_eq!(documents[0].value(), json!({ "a": "😀" }));
        assert_eq!(documents[1].number, 2);
        assert_eq!(documents[1].line_of(&[Step::Key("b".into())]), 3);
    }

    #[test]
    fn broken_text_is_placed() {
        let message = |text: &str| split(text, "f").unwrap_err().to_string();
        assert!(
            message("a: 1\n---\nb: [\n").starts_with("f, document 2, line "),
            "{}",
            message("a: 1\n---\nb: [\n")
        );
        assert!(
            message("a: 1\na: 2\n").starts_with("f, document 1, line 2: "),
            "{}",
            message("a: 1\na: 2\n")
        );
        assert!(message("{\"a\": 1,\n\"b\" 2}").starts_with("f, document 1, line 2: not JSON"));
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, before) in
            [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f"), ("h", "g")]
        {
            let items = vec![format!("*{before}"); 10].join(", ");
            bomb.push_str(&format!("{name}: &{name} [{items}]\n"));
        }
        assert!(split(&bomb, "f").is_err());
        assert!(split(&"[".repeat(100_000), "f").is_err());
        assert!(split(&"{\"a\":".repeat(100_000), "f").is_err());
    }
}
