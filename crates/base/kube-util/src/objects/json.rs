//! Objects in the bytes of a list.

use std::ops::Range;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Namespace and name of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Name {
    /// Empty for a cluster-wide object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
}

/// A malformed object.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unreadable {
    /// The parser's error.
    pub error: serde_json::Error,
    /// The raw object. Parts skipped while reading other fields may be anything between their brackets.
    pub json: Vec<u8>,
}

#[derive(Deserialize)]
struct WithMetadata<M> {
    metadata: M,
}

/// The metadata of a list. serde_json skips the rest without reading it.
pub(super) fn list_metadata(list: &[u8]) -> Result<ListMeta, serde_json::Error> {
    serde_json::from_slice(list).map(|list: WithMetadata<ListMeta>| list.metadata)
}

/// Parses an object as its own type; the usual `read` of a list or watch.
///
/// # Errors
/// The object is of another type.
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

/// The object, read by `read`.
pub(super) fn object<T>(
    json: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
) -> (Name, Result<T, Unreadable>) {
    let name = serde_json::from_slice(json).map(|object: WithMetadata<Name>| object.metadata);
    let object = read(json).map_err(|error| Unreadable { error, json: json.to_vec() });
    (name.unwrap_or_default(), object)
}

/// The objects of a list: the elements of its only array.
pub(super) fn items(list: &[u8]) -> Vec<Range<usize>> {
    within(list, *b"{[")
}

/// The object of a watch's line.
pub(super) fn object_of_line(line: &[u8]) -> &[u8] {
    within(line, *b"{").into_iter().next().map_or(&[], |object| &line[object])
}

/// Bracketed values inside these brackets, the outermost first.
fn within<const N: usize>(json: &[u8], around: [u8; N]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let (mut open, mut begin) = ([0; N], 0);
    for (at, byte) in json.iter().enumerate() {
        if in_string {
            (in_string, is_escaped) = (is_escaped || *byte != b'"', *byte == b'\\' && !is_escaped);
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                match open.get_mut(depth) {
                    Some(bracket) => *bracket = *byte,
                    None if depth == N => begin = at,
                    None => {}
                }
                depth += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == N && open == around {
                    found.push(begin..at + 1);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// JSON rejected by all our readers. The API server passes on all but the number in opaque parameters.
    fn odd() -> [Vec<u8>; 4] {
        let nested = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        [nested.into_bytes(), br#""\ud800""#.to_vec(), b"\"\xff\xfe\"".to_vec(), b"1e999".to_vec()]
    }

    fn object_with(name: &str, parameters: &[u8]) -> Vec<u8> {
        let head = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u-{name}","resourceVersion":"7"}},"spec":"#
        );
        [head.as_bytes(), parameters, b"}"].concat()
    }

    fn list_of(objects: &[Vec<u8>]) -> Vec<u8> {
        let head = br#"{"kind":"List","metadata":{"resourceVersion":"9","continue":"x"},"items":["#;
        [head.as_slice(), &objects.join(&b","[..]), b"]}\n"].concat()
    }

    #[test]
    fn an_object_that_cannot_be_read_costs_itself() {
        for parameters in odd() {
            let objects = [
                object_with("before", br#"{"a":["]}","\"{[","\\"]}"#),
                object_with("odd", &parameters),
                object_with("after", b"[{}]"),
            ];
            let list = list_of(&objects);
            assert!(serde_json::from_slice::<Value>(&list).is_err(), "no list is lost for it otherwise");
            assert_eq!(list_metadata(&list).unwrap().continue_.as_deref(), Some("x"));
            let read: Vec<_> = items(&list)
                .into_iter()
                .map(|item| object(&list[item], from_json::<Value>))
                .map(|(name, object)| (name.name, name.resource_version, object.is_ok()))
                .collect();
            let expected = [("before", true), ("odd", false), ("after", true)];
            assert_eq!(read, expected.map(|(name, is_read)| (name.to_owned(), "7".to_owned(), is_read)));
        }
    }

    #[test]
    fn the_object_of_a_line_is_found_whatever_is_in_it() {
        for parameters in odd() {
            let object = object_with("odd", &parameters);
            let line = [br#"{"type":"ADDED","object":"#.as_slice(), &object, b"}\n"].concat();
            assert_eq!(object_of_line(&line), object);
        }
        assert_eq!(object_of_line(br#"{"type":"BOOKMARK"}"#), b"");
    }

    #[test]
    fn a_list_without_objects_has_none() {
        for list in
            [&list_of(&[])[..], br#"{"metadata":{},"items":null}"#, b"", b"{}", b"]]]]", br#"{"a":[["#]
        {
            assert!(items(list).is_empty(), "{}", String::from_utf8_lossy(list));
        }
    }
}
