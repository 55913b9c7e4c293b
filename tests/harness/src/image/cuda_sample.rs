use std::path::Path;

use super::{Image, ImageError, test_image};

/// The image of pods that use a card as a CUDA program does: the emulator's `cuda-sample` with the libraries it is linked
/// to, and the commands of the test image. As an image for real cards, it brings nothing of the driver. The emulated
/// machine is no part of it either: its pods mount the machine's directory, which stands for what a kernel would do, and
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
