//! The manifests of the demo: files of `examples/`, as a user would write them.

use tessera_harness::{CUDA_SAMPLE_IMAGE, TEST_IMAGE};

use super::Images;

/// One file of `examples/`.
pub struct Manifest {
    /// The file's path in the repository.
    pub file: &'static str,
    /// The purpose of the manifest.
    pub purpose: &'static str,
    /// The content, with the images of the demo's own cluster.
    text: &'static str,
}

macro_rules! manifest {
    ($file:literal, $purpose:literal) => {
        Manifest { file: $file, purpose: $purpose, text: include_str!(concat!("../../../../", $file)) }
    };
}

/// The first manifest: the job, to be ended before the others are submitted.
pub const JOB: Manifest =
    manifest!("examples/aligned-cards/four-aligned-cards.yaml", "a job: four aligned cards, else any four");

/// Submitted together once the job has ended.
pub const PODS: [Manifest; 7] = [
    manifest!("examples/whole-cards/one-card.yaml", "one card"),
    manifest!("examples/aligned-cards/two-linked-cards.yaml", "two cards of one NVLink group"),
    manifest!("examples/whole-cards/large-card.yaml", "a card with at least 40Gi, by CEL"),
    manifest!("examples/extended-resource/two-cards.yaml", "nvidia.com/gpu: 2, without a claim"),
    manifest!("examples/whole-cards/too-many-cards.yaml", "nine cards: more than there are"),
    manifest!("examples/partitions/by-profile.yaml", "a MIG partition, by its profile"),
    manifest!("examples/partitions/by-memory.yaml", "a MIG partition, by its memory"),
];

/// Only where containers really run: without a node's `mps-host`, MPS shares wait.
pub const SHARES: Manifest =
    manifest!("examples/mps-shares/quarters.yaml", "four quarters of one card, by MPS");

impl Manifest {
    /// Number of pods created by the file.
    pub fn pods(&self) -> usize {
        self.text.lines().filter(|line| *line == "kind: Pod").count()
    }

    /// The content, with the containers' images filled in.
    pub fn with_images(&self, images: &Images<'_>) -> String {
        self.text
            .replace(TEST_IMAGE, images.commands)
            .replace(CUDA_SAMPLE_IMAGE, images.cuda_sample)
            .replace("imagePullPolicy: Never", &format!("imagePullPolicy: {}", images.pull_policy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_name_images_of_the_demos_cluster() {
        for manifest in PODS.iter().chain([&JOB, &SHARES]) {
            let images = manifest.text.lines().filter_map(|line| line.trim().strip_prefix("image: "));
            let strange: Vec<&str> =
                images.filter(|image| ![TEST_IMAGE, CUDA_SAMPLE_IMAGE].contains(image)).collect();
            assert!(strange.is_empty(), "{}: {strange:?}", manifest.file);
        }
    }
}
