//! GPUs as `--gres` and `--gpus` name them.

use std::str::FromStr;

use tessera_api::ProfileSpelling;

use crate::time_limit::whole;

/// Most devices of a request: Kubernetes allocates no more to a claim.
const MOST: u64 = 32;

/// A kind of device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// A whole card.
    Card {
        /// Words of its product name, lower case: `h100`, or `a100` and `80gb`; empty for any.
        model: Vec<String>,
    },
    /// A MIG partition.
    Partition {
        /// As in `1g.10gb`.
        profile: String,
        /// As of a card.
        model: Vec<String>,
    },
    /// A share of a card by MPS, of its GpuPool's default size.
    Share,
}

impl Device {
    /// Of Slurm's type: a model, a profile, or both as in `a100_1g.10gb`.
    fn of_type(text: &str) -> Result<Self, String> {
        let (before, last) = text.rsplit_once('_').unwrap_or(("", text));
        if ProfileSpelling::of_profile(last).is_ok() {
            return Ok(Device::Partition { profile: last.to_owned(), model: words(before)? });
        }
        Ok(Device::Card { model: words(text)? })
    }
}

/// Words of a model, all of them in the product name: Slurm's types are product names in lower case with `_`.
pub(crate) fn words(text: &str) -> Result<Vec<String>, String> {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ' ');
    // A mistyped number has a sign, as in gpu:-1.
    if !text.chars().all(is_known) || text.starts_with('-') {
        return Err(format!("{text:?} is neither a model of a card nor a number"));
    }
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    Ok(words.map(str::to_ascii_lowercase).collect())
}

/// An amount of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// The kind.
    pub device: Device,
    /// How many, from 1.
    pub count: u32,
}

/// The value of `--gres`: amounts for each node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gres(pub Vec<Amount>);

/// The value of `--gpus`, `--gpus-per-node` or `--gpus-per-task`: amounts without the word `gpu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpus(pub Vec<Amount>);

impl FromStr for Gres {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Gres::default());
        }
        let amount = |entry: &str| {
            let (name, rest) = entry.split_once(':').unwrap_or((entry, ""));
            match name.trim_start_matches("gres/") {
                "gpu" => amount(rest, &format!("{entry:?}")),
                "shard" => match count(if rest.is_empty() { "1" } else { rest })? {
                    0 | 1 => Ok(Amount { device: Device::Share, count: 1 }),
                    _ => Err("one share for a node: ask for shard:1, whose size is the GpuPool's default, or print \
                              the objects with -o yaml and write memory and compute into the claim"
                        .to_owned()),
                },
                "mps" => Err("ask for shard:1, a share of a card by MPS".to_owned()),
                other => Err(format!("{other:?} is not known here: only gpu and shard are")),
            }
        };
        let amounts: Result<Vec<Amount>, String> = text.split(',').map(amount).collect();
        Ok(Gres(amounts?.into_iter().filter(|amount| amount.count > 0).collect()))
    }
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let amounts: Result<Vec<Amount>, String> =
            text.split(',').map(|entry| amount(entry, &format!("{entry:?}"))).collect();
        Ok(Gpus(amounts?.into_iter().filter(|amount| amount.count > 0).collect()))
    }
}

/// `[type:]count`, `type`, or nothing for one.
fn amount(text: &str, said: &str) -> Result<Amount, String> {
    let (kind, number) = match text.rsplit_once(':') {
        Some((kind, number)) => (kind, number),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => ("", text),
        None => (text, ""),
    };
    if kind.contains(':') {
        return Err(format!("{said} has too many colons: expected a type and a number, as in h100:8"));
    }
    let count = if number.is_empty() { 1 } else { count(number)? };
    Ok(Amount { device: Device::of_type(kind)?, count })
}

fn count(text: &str) -> Result<u32, String> {
    let number = whole(text).ok_or_else(|| format!("{text:?} is no number of GPUs"))?;
    u32::try_from(number).map_err(|_| format!("{number} are too many"))
}

impl Amount {
    /// Whether one claim can hold so many.
    pub(crate) fn fits_a_claim(&self) -> bool {
        u64::from(self.count) <= MOST
    }
}
