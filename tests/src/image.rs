//! Container images made here: one layer, no registry, no container engine.

mod archive;
mod binary;
mod test_image;

pub use archive::{Image, ImageError};
pub use test_image::{TEST_IMAGE, write_test_image};
