//! Cuts JSON that is nested too deep.

/// A depth that every reader of this program accepts: serde_json stops at 128.
const DEEPEST: usize = 100;

/// `json` with `null` in place of everything nested deeper than [`DEEPEST`]; `None` if there is nothing to cut.
///
/// The API server accepts opaque parameters of a claim that are nested thousands of times. One such claim must not hide
/// all others.
pub fn shallow(json: &str) -> Option<String> {
    let mut kept = String::new();
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    // Position in `json` up to which it is in `kept`, and where the part that is too deep began.
    let (mut done, mut cut) = (0, None);
    for (at, byte) in json.bytes().enumerate() {
        if in_string {
            (in_string, is_escaped) = (is_escaped || byte != b'"', byte == b'\\' && !is_escaped);
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                if depth == DEEPEST {
                    cut = Some(at);
                }
                depth += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == DEEPEST
                    && let Some(begin) = cut.take()
                {
                    kept.push_str(&json[done..begin]);
                    kept.push_str("null");
                    done = at + 1;
                }
            }
            _ => {}
        }
    }
    (done > 0).then(|| kept + &json[done..])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn nested(times: usize, inner: &str) -> String {
        format!(r#"{{"a":{}{inner}{},"b":"ü"}}"#, "[".repeat(times), "]".repeat(times))
    }

    #[test]
    fn what_is_too_deep_is_cut_and_the_rest_stays() {
        for times in [DEEPEST - 1, 5_000] {
            let text = nested(times, r#""]}\"\\",{"x":"}"}"#);
            let read: Value = serde_json::from_str(&shallow(&text).unwrap()).unwrap();
            assert_eq!(read["b"], "ü");
            let mut inner = &read["a"];
            while inner.is_array() {
                inner = &inner[0];
            }
            assert_eq!(*inner, if times < DEEPEST { json!(r#"]}"\"#) } else { Value::Null });
        }
    }

    #[test]
    fn what_is_not_too_deep_is_left_alone() {
        let in_a_string = format!(r#"{{"a":"{}"}}"#, "[".repeat(500));
        for text in ["", "{}", "]]]]", &nested(DEEPEST - 1, "1"), &in_a_string, "\"\\"] {
            assert_eq!(shallow(text), None, "{text}");
        }
        assert_eq!(shallow(&"[".repeat(500)), None, "not to its end");
    }
}
