//! Container images made here: one layer, no registry, no container engine.

mod archive;
mod binary;
mod cuda_sample;
mod test_image;

pub use archive::{Image, ImageError};
pub use cuda_sample::{CUDA_SAMPLE_IMAGE, write_cuda_sample_image};
pub use test_image::{TEST_IMAGE, write_test_image};
