use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use serde_saphyr::Error;
use tessera_api::ProfileSpelling;

use super::entry::{CardIndexes, LayoutConfig, LayoutEntry};
use super::file_error::LayoutFileError;

/// Maximum length of a bad value quoted in a message.
const SHOWN: usize = 60;

/// A file of `mig-parted`'s format, version `v1`, read strictly: anything unknown is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutFile {
    configs: BTreeMap<String, LayoutConfig>,
}

/// There is no configuration of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no layout {name:?} in the file; it has {known}")]
pub struct UnknownLayout {
    /// The requested name.
    pub name: String,
    /// The names in the file.
    pub known: String,
}

/// A place in the file, for messages.
#[derive(Clone, Copy)]
enum At<'a> {
    File,
    Config(&'a str),
    Entry(&'a str, usize),
}

impl LayoutFile {
    /// Reads a file's text (YAML, and so JSON too).
    ///
    /// # Errors
    /// [`LayoutFileError`]
    pub fn parse(text: &str) -> Result<Self, LayoutFileError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let root: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| match error
            .without_snippet()
        {
            Error::MultipleDocuments { .. } => LayoutFileError::Documents,
            other => LayoutFileError::Yaml(other.to_string()),
        })?;
        let root = mapping(At::File, &root)?;
        only(At::File, root, &["version", "mig-configs"])?;
        match field(At::File, root, "version")? {
            Value::String(version) if version == "v1" => {}
            other => return Err(LayoutFileError::Version(shown(other))),
        }
        let configs = field(At::File, root, "mig-configs")?;
        let wanted = "a mapping of layouts by name, at least one,";
        let Value::Object(configs) = configs else { return Err(value(At::File, configs, wanted)) };
        if configs.is_empty() {
            return Err(value(At::File, &Value::Object(Map::new()), wanted));
        }
        let configs = configs.iter().map(|(name, entries)| Ok((name.clone(), config(name, entries)?)));
        Ok(LayoutFile { configs: configs.collect::<Result<_, LayoutFileError>>()? })
    }

    /// The configuration of a name.
    ///
    /// # Errors
    /// [`UnknownLayout`], with the existing names.
    pub fn config(&self, name: &str) -> Result<&LayoutConfig, UnknownLayout> {
        self.configs.get(name).ok_or_else(|| UnknownLayout {
            name: name.to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })
    }

    /// The names of the configurations, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.keys().map(String::as_str)
    }
}

fn config(name: &str, entries: &Value) -> Result<LayoutConfig, LayoutFileError> {
    let Some(entries) = entries.as_array().filter(|entries| !entries.is_empty()) else {
        return Err(value(At::Config(name), entries, "a list of at least one entry"));
    };
    let entries = entries.iter().enumerate().map(|(index, value)| entry(At::Entry(name, index + 1), value));
    Ok(LayoutConfig { entries: entries.collect::<Result<_, _>>()? })
}

fn entry(at: At<'_>, found: &Value) -> Result<LayoutEntry, LayoutFileError> {
    let fields = mapping(at, found)?;
    only(at, fields, &["device-filter", "devices", "mig-enabled", "mig-devices"])?;
    let device_filter = match fields.get("device-filter") {
        None | Some(Value::Null) => BTreeSet::new(),
        Some(Value::String(id)) if id.is_empty() => BTreeSet::new(),
        Some(Value::Array(ids)) => ids.iter().map(|id| device_id(at, id)).collect::<Result<_, _>>()?,
        Some(id) => BTreeSet::from([device_id(at, id)?]),
    };
    let devices = match field(at, fields, "devices")? {
        Value::String(all) if all == "all" => CardIndexes::All,
        Value::Array(indexes) => {
            CardIndexes::Some(indexes.iter().map(|index| card_index(at, index)).collect::<Result<_, _>>()?)
        }
        other => return Err(value(at, other, "devices: all, or a list of indexes,")),
    };
    let mig_enabled = match field(at, fields, "mig-enabled")? {
        Value::Bool(enabled) => *enabled,
        other => return Err(value(at, other, "mig-enabled: true or false")),
    };
    let mig_devices = match fields.get("mig-devices") {
        None | Some(Value::Null) if mig_enabled => {
            return Err(LayoutFileError::Missing { at: at.to_string(), field: "mig-devices" });
        }
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(counts)) => {
            counts.iter().map(|(profile, count)| mig_device(at, profile, count)).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(value(at, other, "mig-devices: a mapping of counts by profile")),
    };
    if !mig_enabled && !mig_devices.is_empty() {
        return Err(LayoutFileError::DevicesWhileDisabled { at: at.to_string() });
    }
    Ok(LayoutEntry { device_filter, devices, mig_enabled, mig_devices })
}

/// As `mig-parted` reads it: in any base with its prefix.
fn device_id(at: At<'_>, found: &Value) -> Result<u32, LayoutFileError> {
    let wanted = "device-filter: a PCI device id in quotes, as in \"0x20B210DE\"";
    let Value::String(text) = found else { return Err(value(at, found, wanted)) };
    let id = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.starts_with(|digit: char| digit.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None if text.starts_with(|digit: char| digit.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    id.ok_or_else(|| value(at, found, wanted))
}

fn card_index(at: At<'_>, found: &Value) -> Result<u32, LayoutFileError> {
    let index = found.as_u64().and_then(|index| u32::try_from(index).ok());
    index.ok_or_else(|| value(at, found, "devices: the index of a card"))
}

fn mig_device(at: At<'_>, profile: &str, count: &Value) -> Result<(String, u32), LayoutFileError> {
    if ProfileSpelling::of_profile(profile).is_err() {
        let profile = Value::String(profile.to_owned());
        return Err(value(at, &profile, "mig-devices: a profile, as in \"1g.10gb\" or \"1g.10gb+me\","));
    }
    if profile.split('.').count() > 2 && profile.split('.').next().is_some_and(|part| part.ends_with('c')) {
        return Err(LayoutFileError::Width { at: at.to_string(), profile: profile.to_owned() });
    }
    let number = count.as_u64().and_then(|count| u32::try_from(count).ok());
    let number = number.ok_or_else(|| value(at, count, "mig-devices: how many partitions of a profile"))?;
    Ok((profile.to_owned(), number))
}

fn mapping<'a>(at: At<'_>, found: &'a Value) -> Result<&'a Map<String, Value>, LayoutFileError> {
    found.as_object().ok_or_else(|| value(at, found, "a mapping of fields"))
}

fn only(at: At<'_>, fields: &Map<String, Value>, known: &[&str]) -> Result<(), LayoutFileError> {
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => Err(LayoutFileError::UnknownField {
            at: at.to_string(),
            field: field.chars().take(SHOWN).collect(),
            known: known.join(", "),
        }),
    }
}

fn field<'a>(
    at: At<'_>,
    fields: &'a Map<String, Value>,
    name: &'static str,
) -> Result<&'a Value, LayoutFileError> {
    fields.get(name).ok_or_else(|| LayoutFileError::Missing { at: at.to_string(), field: name })
}

fn value(at: At<'_>, found: &Value, wanted: &'static str) -> LayoutFileError {
    LayoutFileError::Value { at: at.to_string(), found: shown(found), wanted }
}

fn shown(found: &Value) -> String {
    let text = found.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::File => formatter.write_str("the file"),
            At::Config(name) => write!(formatter, "mig-configs, {name:?}"),
            At::Entry(name, number) => write!(formatter, "mig-configs, {name:?}, entry {number}"),
        }
    }
}
