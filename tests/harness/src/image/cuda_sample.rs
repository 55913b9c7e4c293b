use std::path::Path;

use super::{Image, ImageError, test_image};

/// The image of pods using a card like a CUDA program: the emulator's `cuda-sample` with its linked libraries,
/// and the commands of the test image. Like an image for real cards, it contains nothing of the driver. Nor does it
/// contain the emulated machine: its pods mount the machine's directory, a stand-in for the kernel's part, and
/// name it in `GPU_EMULATOR_MACHINE`.
pub const CUDA_SAMPLE_IMAGE: &str = "tessera.test/cuda-sample:1";

/// Writes the image. `sample` is `cuda-sample`, `commands` the program of the test image.
///
/// # Errors
/// See [`ImageError`].
pub fn write_cuda_sample_image(sample: &Path, commands: &Path, archive: &Path) -> Result<(), ImageError> {
    let image = Image::new(CUDA_SAMPLE_IMAGE).binary("/usr/bin/cuda-sample", sample)?;
    test_image::with_commands(image, commands)?.entrypoint(["/usr/bin/cuda-sample"]).write(archive)
}
