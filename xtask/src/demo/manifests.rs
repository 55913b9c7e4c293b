//! What the demo submits: the files of `examples/demo/`, as a user would write them.

/// One file of `examples/demo/`, and what it shows.
pub struct Manifest {
    /// The file's name in `examples/demo/`.
    pub file: &'static str,
    /// What it asks for.
    pub purpose: &'static str,
    /// The file, still with `$(IMAGE)` and `$(CUDA_SAMPLE_IMAGE)`.
    text: &'static str,
}

macro_rules! manifest {
    ($file:literal, $purpose:literal) => {
        Manifest {
            file: $file,
            purpose: $purpose,
            text: include_str!(concat!("../../../examples/demo/", $file)),
        }
    };
}

/// The job that comes first, and must end before the others are submitted.
pub const JOB: Manifest =
    manifest!("1-four-aligned-cards.yaml", "a job: four cards that lie well together, else any four");

/// What is submitted together once the job has ended.
pub const PODS: [Manifest; 6] = [
    manifest!("2-one-card.yaml", "one card"),
    manifest!("3-two-linked-cards.yaml", "two cards of one NVLink group"),
    manifest!("4-large-card.yaml", "a card with at least 40Gi, by CEL"),
    manifest!("5-extended-resource.yaml", "nvidia.com/gpu: 2, without a claim"),
    manifest!("6-too-many-cards.yaml", "nine cards: more than there are"),
    manifest!("7-partitions.yaml", "MIG partitions: by profile, and by memory"),
];

/// Where containers really run: without a node's `mps-host` shares by MPS wait.
pub const SHARES: Manifest = manifest!("8-shares.yaml", "four quarters of one card, by MPS");

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
