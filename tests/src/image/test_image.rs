use std::path::Path;

use super::{Image, ImageError};

/// The image of test pods, and of the sandbox of every pod. Without a command its containers wait for TERM; its
/// commands are those of `tests/tools/testimage`.
pub const TEST_IMAGE: &str = "tessera.test/testimage:1";

/// Names under which its program can be called.
const NAMES: &[&str] =
    &["hold", "view", "env", "ls", "stat", "cat", "echo", "sleep", "write", "fetch", "true", "false"];

/// Writes the test image, made of its static program.
///
/// # Errors
/// See [`ImageError`].
pub fn write_test_image(program: &Path, archive: &Path) -> Result<(), ImageError> {
    let mut image = Image::new(TEST_IMAGE).file("/bin/testimage", program, 0o755)?;
    for name in NAMES {
        image = image.link(&format!("/bin/{name}"), "testimage");
    }
    image
        .bytes("/etc/passwd", "root:x:0:0:root:/root:/bin/false\n", 0o644)
        .entrypoint(["/bin/hold"])
        .write(archive)
}
