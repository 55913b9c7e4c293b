//! Builds container images: one layer, no registry, no container engine. Reproducible: the same bytes for the same
//! programs.

mod architecture;
mod binary;
mod contents;
mod cuda_sample;
mod error;
mod gpu_emulator;
mod layout;
mod test_image;

pub use architecture::Architecture;
pub use contents::Image;
pub use cuda_sample::{CUDA_SAMPLE_IMAGE, write_cuda_sample_image};
pub use error::ImageError;
pub use gpu_emulator::gpu_emulator_image;
pub use layout::{Written, write_archive, write_layout};
pub use test_image::{TEST_IMAGE, write_test_image};
