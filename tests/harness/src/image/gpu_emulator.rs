use std::path::Path;

use super::{Image, ImageError, test_image};

/// Programs laid out on a node by `gpu-emulator node`, beside the library.
const PROGRAMS: [&str; 4] =
    ["nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "cuda-sample"];

/// The image of the chart's `emulated.hardware`: `gpu-emulator` with everything needed to make a machine. It is also an image of
/// pods on emulated cards: it has `cuda-sample`, and the commands of the test image. `programs` is the folder of the emulator's
/// programs, `commands` the program of the test image, if available for this architecture.
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
