//! Skips tests whose needs a machine lacks, with a message and a count; with `CI=true` they fail instead.

use std::{env, fmt::Display, fs::OpenOptions, io::Write};

use crate::Cluster;

/// Whether `test` may use the node tier. If not, the reason is printed and noted for the last line
/// of `cargo xtask test`.
///
/// # Panics
/// With `CI=true`, if the tier cannot run: CI must not pass without the tier.
#[must_use]
pub fn node_tier(test: &str) -> bool {
    needs(test, Cluster::node_tier_available())
}

/// Whether the needs of `test` are met. If not, the reason is printed and noted for the last line of
/// `cargo xtask test`.
///
/// # Panics
/// With `CI=true`, if something is missing: CI must not pass without the test.
#[must_use]
pub fn needs<T>(test: &str, need: Result<T, impl Display>) -> bool {
    let Err(reason) = need else { return true };
    assert!(env::var("CI").as_deref() != Ok("true"), "{test}: {reason}");
    eprintln!("skipped: {test}: {reason}");
    if let Some(path) = env::var_os("TESSERA_SKIPS") {
        let note = OpenOptions::new().create(true).append(true).open(&path);
        let written = note.and_then(|mut file| writeln!(file, "{test}: {reason}"));
        assert!(written.is_ok(), "{test}: cannot note the skip in {}", path.display());
    }
    false
}
