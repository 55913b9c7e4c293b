//! Static SM partitions: multiprocessors reserved by a daemon for one share.
//!
//! After each change of the shares and each start of a daemon, the partitions are made to match the shares. A partition
//! without a share is removed, whatever its origin. So an interrupted attempt needs no record.

use serde::{Deserialize, Serialize};
use tessera_inventory::StaticPartitions;

use super::control::Control;
use super::device::DeviceUuid;
use super::error::MpsError;
use super::protocol::{StaticPartition, StaticShares};

/// The partition of one share, as recorded by the supervisor. Shares keep their order, so that a restarted daemon makes
/// the same partitions in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SharePartition {
    /// The partition's share.
    pub share: String,
    /// Percent of the device's multiprocessors.
    pub compute: u8,
    /// The partition, once made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<StaticPartition>,
}

/// The partitions for `shares`, including those in `known`.
pub(super) fn wanted(known: &[SharePartition], shares: &StaticShares) -> Vec<SharePartition> {
    let is_wanted = |known: &&SharePartition| shares.get(&known.share) == Some(&known.compute);
    let mut wanted: Vec<SharePartition> = known.iter().filter(is_wanted).cloned().collect();
    for (share, compute) in shares {
        if !wanted.iter().any(|known| known.share == *share) {
            wanted.push(SharePartition { share: share.clone(), compute: *compute, made: None });
        }
    }
    wanted
}

/// A daemon's list of its device's partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listed {
    chunks: u32,
    partitions: Vec<ListedPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ListedPartition {
    id: String,
    chunks: u32,
    multiprocessors: u32,
    has_clients: bool,
}

impl Listed {
    /// Parses the table of `lspart`: below the headings one row for the device and one for each of its partitions,
    /// with `-` or nothing in columns that don't apply.
    fn read(text: &str) -> Option<Self> {
        let mut listed: Option<Self> = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "-").collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
            if !words.first().is_some_and(|device| device.starts_with("GPU-")) {
                continue;
            }
            match (&mut listed, number(1).zip(number(2))) {
                (None, Some((free, used))) if words.len() == 5 => {
                    listed = Some(Self { chunks: free.checked_add(used)?, partitions: Vec::new() });
                }
                (Some(listed), _) => listed.partitions.push(ListedPartition {
                    id: (*words.get(1)?).to_owned(),
                    chunks: number(2)?,
                    multiprocessors: number(3)?,
                    has_clients: words.get(4) == Some(&"Yes"),
                }),
                _ => return None,
            }
        }
        listed
    }
}

/// The partition made by `sm_partition add`, by its full name: `Partition GPU-…/<id> created`, or the name alone.
fn created<'a>(text: &'a str, device: &DeviceUuid) -> Option<&'a str> {
    let is_name = |word: &&str| {
        word.strip_prefix(device.as_str()).and_then(|rest| rest.strip_prefix('/')).is_some_and(is_id)
    };
    text.split_whitespace().find(is_name)
}

/// Whether a text looks like the id of a partition: Base64, including slashes. The id becomes part of a command and of
/// a container's environment.
fn is_id(text: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
    !text.is_empty() && text.len() <= 128 && text.bytes().all(is_base64)
}

/// Makes the daemon have exactly these partitions. Notes each new partition and then calls `keep`, so that none is
/// forgotten.
pub(super) async fn reconcile(
    control: &Control,
    wanted: &mut [SharePartition],
    mut keep: impl FnMut(&[SharePartition]) -> Result<(), MpsError>,
) -> Result<(), MpsError> {
    let mut listed = list(control).await?;
    // Shares are of one card.
    let Some(device) = control.devices.first().cloned() else { return Ok(()) };
    let name = |id: &str| format!("{device}/{id}");
    for share in wanted.iter_mut() {
        let is_there = |made: &StaticPartition| {
            listed.partitions.iter().any(|there| made.name == name(&there.id) && made.chunks == there.chunks)
        };
        if !share.made.as_ref().is_some_and(is_there) {
            share.made = None;
        }
    }
    let is_nobodys = |there: &&ListedPartition| {
        !wanted.iter().filter_map(|share| share.made.as_ref()).any(|made| made.name == name(&there.id))
    };
    let nobodys: Vec<ListedPartition> = listed.partitions.iter().filter(is_nobodys).cloned().collect();
    for there in &nobodys {
        // Its answer differs between versions; the list below shows the result.
        control.order(&format!("sm_partition rm {device} {}", there.id)).await?;
    }
    if wanted.iter().all(|share| share.made.is_some()) {
        return Ok(());
    }
    if !nobodys.is_empty() {
        listed = list(control).await?;
    }
    for position in 0..wanted.len() {
        let SharePartition { compute, made, .. } = &wanted[position];
        if made.is_some() {
            continue;
        }
        let chunks = StaticPartitions::chunks_of(*compute, listed.chunks);
        if chunks == 0 {
            return Err(MpsError::LessThanAChunk { compute: *compute, chunks: listed.chunks });
        }
        let answer = control.order(&format!("sm_partition add {device} {chunks}")).await?;
        let Some(made) = created(&answer, &device) else {
            let left = nobodys
                .iter()
                .filter(|left| left.has_clients && listed.partitions.iter().any(|there| there.id == left.id));
            return Err(MpsError::NoPartition { chunks, answer, left: left.map(|left| left.chunks).sum() });
        };
        let made = made.to_owned();
        let now = list(control).await?;
        let there = now.partitions.iter().find(|there| name(&there.id) == made);
        let multiprocessors = there.map_or(0, |there| there.multiprocessors);
        wanted[position].made = Some(StaticPartition { name: made, chunks, multiprocessors });
        keep(wanted)?;
    }
    Ok(())
}

async fn list(control: &Control) -> Result<Listed, MpsError> {
    let text = control.order("lspart").await?;
    Listed::read(&text).ok_or(MpsError::NotListed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65";

    /// The forms in NVIDIA's documentation, and the ones parsed by other programs.
    #[test]
    fn tables_of_both_forms() {
        let documented = "GPU Partition free used free used clients\nchunk chunk SM SM\nGPU-74d43ed3 - 3 7 24 56 -\n\
            GPU-74d43ed3 Dx4AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA - 7 - 56 -\n";
        let seen = "GPU            Partition     free   used  free  used  clients\n               chunks chunks SM SM\n\
            GPU-74d43ed3   3  7  24  56\nGPU-74d43ed3 D/79e/DgwYMDAAAAAAAAAAAAAAAAAAAAAAAAA  7  56  Yes\n";
        for (text, id, has_clients) in [
            (documented, "Dx4AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", false),
            (seen, "D/79e/DgwYMDAAAAAAAAAAAAAAAAAAAAAAAAA", true),
        ] {
            let partition = ListedPartition { id: id.into(), chunks: 7, multiprocessors: 56, has_clients };
            assert_eq!(Listed::read(text), Some(Listed { chunks: 10, partitions: vec![partition] }));
        }
        for wrong in ["", "Unknown command", "GPU-1 x y", "GPU-1 1 2 3 4\nGPU-1 id"] {
            assert_eq!(Listed::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn answers_of_both_forms() {
        let device: DeviceUuid = UUID.parse().unwrap();
        let name = format!("{UUID}/D/79e/DgwYMDAAAA");
        for text in [format!("Partition {name} created"), name.clone()] {
            assert_eq!(created(&text, &device), Some(&*name));
        }
        for text in [
            "Failed to fulfill the requested SM partition of 10 chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
            "GPU-00000000-cdf7-e667-3644-bf5b4f46ed65/AAAA",
            &format!("{UUID}/"),
            &format!("{UUID}/a;b"),
        ] {
            assert_eq!(created(text, &device), None, "{text}");
        }
    }

    #[test]
    fn shares_keep_their_partitions() {
        let made = |name: &str| Some(StaticPartition { name: name.into(), chunks: 1, multiprocessors: 8 });
        let share = |share: &str, compute, made| SharePartition { share: share.into(), compute, made };
        let known = [share("c", 10, made("c")), share("b", 10, made("b")), share("a", 10, made("a"))];
        let shares =
            [("a", 10), ("b", 20), ("c", 10), ("d", 5)].map(|(share, compute)| (share.to_owned(), compute));
        assert_eq!(
            wanted(&known, &shares.into_iter().collect()),
            [share("c", 10, made("c")), share("a", 10, made("a")), share("b", 20, None), share("d", 5, None)],
            "b has another size"
        );
    }
}
