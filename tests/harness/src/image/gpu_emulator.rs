use std::path::Path;

use super::{Image, ImageError, test_image};

/// What `gpu-emulator node` lays out on a node, beside the library.
const PROGRAMS: [&str; 4] =
    ["nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "cuda-sample"];

/// The image of the chart's `emulated.hardware`: `gpu-emulator` with all that it makes a machine of. It is also an image of pods
/// that try emulated cards: it has `cuda-sample`, and the commands of the test image. `programs` is where the emulator's programs
/// lie, `commands` the program of the test image, if it is there for this architecture.
///
/// # Errors
/// See [`ImageError`].
pub fn gpu_emulator_image(
    reference: &str,
    programs: &Path,
    commands: Option<&Path>,
) -> Result<Image, ImageError> {
    let image = Image::from_binary(reference, &programs.join("gpu-emulator"))?;
    let library = "libtessera_emulator.so";
    let image = image.file(&format!("/usr/bin/{library}"), &programs.join(library), 0o755)?;
    let image = PROGRAMS.iter().try_fold(image, |image, program| {
        image.binary(&format!("/usr/bin/{program}"), &programs.join(program))
    })?;
    match commands {
        Some(commands) => test_image::with_commands(image, commands),
        None => Ok(image),
    }
}
