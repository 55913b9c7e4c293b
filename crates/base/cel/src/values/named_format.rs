//! Kubernetes' named formats of texts.

use std::sync::LazyLock;

use regex::Regex;

use super::url;

/// A named format.
#[derive(Debug)]
pub(crate) struct NamedFormat {
    /// Name for look-up.
    pub name: &'static str,
    /// Name for comparing two formats.
    pub display_name: &'static str,
    /// Size of its regular expression, for the cost estimate.
    pub regex_size: u64,
    pub validate: fn(&str) -> Vec<String>,
}

/// All formats, in the order of the implementations' numbers.
pub(crate) static FORMATS: [NamedFormat; 13] = [
    NamedFormat {
        name: "dns1123Label",
        display_name: "DNS1123Label",
        regex_size: 30,
        validate: |text| label(text),
    },
    NamedFormat {
        name: "dns1123Subdomain",
        display_name: "DNS1123Subdomain",
        regex_size: 60,
        validate: |text| subdomain(text),
    },
    NamedFormat {
        name: "dns1035Label",
        display_name: "DNS1035Label",
        regex_size: 30,
        validate: |text| label_1035(text),
    },
    NamedFormat {
        name: "qualifiedName",
        display_name: "QualifiedName",
        regex_size: 60,
        validate: qualified_name,
    },
    NamedFormat {
        name: "dns1123LabelPrefix",
        display_name: "DNS1123LabelPrefix",
        regex_size: 30,
        validate: |text| label(&without_dash(text)),
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        display_name: "DNS1123SubdomainPrefix",
        regex_size: 60,
        validate: |text| subdomain(&without_dash(text)),
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        display_name: "DNS1035LabelPrefix",
        regex_size: 30,
        validate: |text| label_1035(&without_dash(text)),
    },
    NamedFormat { name: "labelValue", display_name: "LabelValue", regex_size: 40, validate: label_value },
    NamedFormat {
        name: "uri",
        display_name: "URI",
        regex_size: 1103,
        validate: |text| url::request_error(text).into_iter().collect(),
    },
    NamedFormat { name: "uuid", display_name: "uuid", regex_size: 70, validate: uuid },
    NamedFormat { name: "byte", display_name: "byte", regex_size: 84, validate: base64 },
    NamedFormat { name: "date", display_name: "date", regex_size: 71, validate: date },
    NamedFormat { name: "datetime", display_name: "datetime", regex_size: 71, validate: date_time },
];

/// A name prefix may end in a dash: replaces the dash by a letter.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

fn explain(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    format!("{message} (e.g. {}, regex used for validation is '{pattern}')", examples.join(",  or "))
}

fn is_label(text: &str, first: fn(u8) -> bool) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(head), Some(tail)) = (bytes.first(), bytes.last()) else { return false };
    first(*head) && is_alphanumeric(*tail) && bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-')
}

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

fn label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text, lower_or_digit) {
        if subdomain(text).is_empty() {
            errors.push("must not contain dots".to_owned());
        } else {
            errors.push(explain(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ));
        }
    }
    errors
}

fn subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if !text.split('.').all(|part| is_label(part, lower_or_digit)) {
        errors.push(explain(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    errors
}

fn label_1035(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text, |byte| byte.is_ascii_lowercase()) {
        errors.push(explain(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                            alphanumeric character";

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(head), Some(tail)) = (bytes.first(), bytes.last()) else { return false };
    head.is_ascii_alphanumeric()
        && tail.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let examples = ["MyName", "my.name", "123-abc"];
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")));
            }
            *name
        }
        _ => {
            errors.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                explain(NAME_MESSAGE, NAME, &examples)
            ));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63)));
    }
    if !is_name(name) {
        errors.push(format!("name part {}", explain(NAME_MESSAGE, NAME, &examples)));
    }
    errors
}

fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !text.is_empty() && !is_name(text) {
        errors.push(explain(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

fn unless(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

/// A fixed pattern; an invalid one matches nothing.
fn fixed(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

fn uuid(text: &str) -> Vec<String> {
    static PATTERN: LazyLock<Option<Regex>> =
        LazyLock::new(|| fixed("(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
    unless(PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text)), "does not match the UUID format")
}

fn base64(text: &str) -> Vec<String> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        fixed("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
    });
    unless(PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text)), "invalid base64")
}

fn date(text: &str) -> Vec<String> {
    unless(super::time::parse_date(text).is_some(), "invalid date")
}

fn date_time(text: &str) -> Vec<String> {
    static PATTERN: LazyLock<Option<Regex>> =
        LazyLock::new(|| fixed("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
    let is_valid = || {
        let lower = text.to_lowercase();
        let mut parts = lower.split('t');
        super::time::parse_date(parts.next()?)?;
        let captures = PATTERN.as_ref()?.captures(parts.next()?)?;
        (&captures[1] <= "23" && &captures[2] <= "59" && &captures[3] <= "59").then_some(())
    };
    unless(text.len() >= 4 && is_valid().is_some(), "invalid datetime")
}
