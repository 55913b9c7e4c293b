use serde_json::Value;

/// Why a configuration object is refused: the place of the fault, the value there, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {shown} {reason}")]
pub struct ConfigError {
    place: String,
    shown: String,
    reason: String,
}

/// Longest excerpt of a user's text, in characters.
const SHOWN: usize = 64;

/// [`show`] as an expression of Kubernetes' CEL.
pub(super) fn show_in_cel(value: &str) -> String {
    format!(
        "type({value}) == string ? ({value}.matches(\"^[ -~]{{0,{SHOWN}}}$\") ? \"\\\"\" + {value} + \"\\\"\" : \
         \"\\\"...\\\"\") :\n  type({value}) == int ? string({value}) : type({value}) == double ? \"this number\" :\n  \
         type({value}) == bool ? ({value} ? \"true\" : \"false\") : type({value}) == list ? \"a list\" :\n  \
         type({value}) == map ? \"an object\" : \"null\""
    )
}

/// A user's value for an error message: shortened, and without characters with an effect where the message is printed.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let is_shown = text.len() <= SHOWN && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            if is_shown { format!("\"{text}\"") } else { "\"...\"".to_owned() }
        }
        Value::Number(number) => {
            number.as_i64().map_or_else(|| "this number".to_owned(), |number| number.to_string())
        }
        Value::Bool(value) => value.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "null".to_owned(),
    }
}

impl ConfigError {
    /// A fault's place, such as `GpuConfig: sharing.strategy`; the value there; and the reason, such as `is not one of MPS`.
    pub(super) fn new(place: &str, value: &Value, reason: &str) -> Self {
        Self { place: place.to_owned(), shown: show(value), reason: reason.to_owned() }
    }
}

/// The beginning of a user's text, for an error message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(300).collect()
}
