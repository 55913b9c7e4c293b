//! Checks in the kubelet's checkpoint file whether the kubelet has forgotten a claim.

use std::path::Path;

use tessera_journal::FileSystem;

/// The file below the kubelet's directory listing the claims the kubelet has asked to prepare.
const CHECKPOINT: &str = "dra_manager_state";

/// Whether the kubelet has forgotten a claim, and so will never call Unprepare for the claim.
///
/// The kubelet writes a claim into its checkpoint before calling Prepare, and removes the claim after a successful Unprepare.
/// Unprepare is called when the last pod with the claim has ended, even if claim and pod are long gone from the API. So a claim
/// missing in the checkpoint has no running pod; one in the checkpoint may have. The format is internal to the kubelet, so the
/// UID is searched in the text. If the file can't be read, no claim counts as forgotten.
///
/// Blocks for a file read.
pub(in crate::prepare) fn is_forgotten(
    file_system: &dyn FileSystem,
    kubelet_directory: &Path,
    uid: &str,
) -> bool {
    let path = kubelet_directory.join(CHECKPOINT);
    match file_system.read(&path) {
        // An empty file is still being written.
        Ok(checkpoint) => {
            !checkpoint.is_empty() && !checkpoint.windows(uid.len()).any(|text| text == uid.as_bytes())
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, uid, "cannot tell whether the kubelet still knows a claim: it \
                keeps what it holds");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use tessera_journal::LocalFileSystem;

    #[test]
    fn only_a_checkpoint_without_the_claim_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let forgotten = || is_forgotten(&LocalFileSystem, path, "3b1f-uid");
        assert!(!forgotten(), "no checkpoint");
        fs::write(path.join(CHECKPOINT), "").unwrap();
        assert!(!forgotten(), "an empty checkpoint");
        fs::write(path.join(CHECKPOINT), r#"{"Data":"{\"entries\":[{\"ClaimUID\":\"3b1f-uid\"}]}"}"#)
            .unwrap();
        assert!(!forgotten(), "a checkpoint with the claim");
        fs::write(path.join(CHECKPOINT), r#"{"Data":"{\"entries\":[]}"}"#).unwrap();
        assert!(forgotten());
    }
}
