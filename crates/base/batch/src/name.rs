//! Names of a job's objects.

/// Longest name: a DNS label also with the number of a pod and a suffix against earlier jobs.
const LONGEST: usize = 48;

/// The DNS label nearest to a name of Slurm's: `Train_ResNet.sh` as `train-resnet-sh`.
pub fn label(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let mut label: String = letters.collect::<String>().to_ascii_lowercase();
    // A Service's name begins with a letter.
    label = label.trim_start_matches(|letter: char| !letter.is_ascii_lowercase()).to_owned();
    label.truncate(LONGEST);
    let label = label.trim_end_matches('-');
    if label.is_empty() { "job".to_owned() } else { label.to_owned() }
}

/// A number for `SLURM_JOB_ID`, from 1 to 2³¹−1, the same for the same name: FNV-1a, 32 bits.
pub fn number(name: &str) -> u32 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 1).max(1)
}
