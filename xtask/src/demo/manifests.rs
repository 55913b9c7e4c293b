//! What the demo submits: files of `examples/`, as a user would write them.

/// One file of `examples/`, and what it shows.
pub struct Manifest {
    /// The file's path in the repository.
    pub file: &'static str,
    /// What it asks for.
    pub purpose: &'static str,
    /// The file, still with `$(IMAGE)` and `$(CUDA_SAMPLE_IMAGE)`.
    text: &'static str,
}

macro_rules! manifest {
    ($file:literal, $purpose:literal) => {
        Manifest { file: $file, purpose: $purpose, text: include_str!(concat!("../../../", $file)) }
    };
}

/// The job that comes first, and must end before the others are submitted.
pub const JOB: Manifest =
    manifest!("examples/aligned-cards/four-aligned-cards.yaml", "a job: four aligned cards, else any four");

/// What is submitted together once the job has ended.
pub const PODS: [Manifest; 7] = [
    manifest!("examples/whole-cards/one-card.yaml", "one card"),
    manifest!("examples/aligned-cards/two-linked-cards.yaml", "two cards of one NVLink group"),
    manifest!("examples/whole-cards/large-card.yaml", "a card with at least 40Gi, by CEL"),
    manifest!("examples/extended-resource/two-cards.yaml", "nvidia.com/gpu: 2, without a claim"),
    manifest!("examples/whole-cards/too-many-cards.yaml", "nine cards: more than there are"),
    manifest!("examples/partitions/by-profile.yaml", "a MIG partition, by its profile"),
    manifest!("examples/partitions/by-memory.yaml", "a MIG partition, by its memory"),
];

/// Where containers really run: without a node's `mps-host` shares by MPS wait.
pub const SHARES: Manifest =
    manifest!("examples/mps-shares/quarters.yaml", "four quarters of one card, by MPS");

impl Manifest {
    /// How many pods the file makes.
    pub fn pods(&self) -> usize {
        self.text.lines().filter(|line| *line == "kind: Pod").count()
    }

    /// The file with the containers' images.
    pub fn with_images(&self, image: &str, cuda_sample: &str) -> String {
        self.text.replace("$(IMAGE)", image).replace("$(CUDA_SAMPLE_IMAGE)", cuda_sample)
    }
}
