use std::path::Path;

use super::{Image, ImageError};

/// The image of test pods, and of the sandbox of every pod. Without a command its containers wait for TERM; its
/// commands are those of `tests/tools/testimage`.
pub const TEST_IMAGE: &str = "tessera.test/testimage:1";

/// Names of its program for calls.
const NAMES: &[&str] =
    &["hold", "view", "env", "ls", "stat", "cat", "echo", "sleep", "write", "fetch", "true", "false"];

/// Writes the test image with its static program.
///
/// # Errors
/// See [`ImageError`].
pub fn write_test_image(program: &Path, archive: &Path) -> Result<(), ImageError> {
    with_commands(Image::new(TEST_IMAGE), program)?
        .bytes("/etc/passwd", "root:x:0:0:root:/root:/bin/false\n", 0o644)
        .entrypoint(["/bin/hold"])
        .write(archive)
}

/// Adds the program, under all of its names.
pub(super) fn with_commands(image: Image, program: &Path) -> Result<Image, ImageError> {
    let image = image.file("/bin/testimage", program, 0o755)?;
    Ok(NAMES.iter().fold(image, |image, name| image.link(&format!("/bin/{name}"), "testimage")))
}
