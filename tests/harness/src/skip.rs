//! What a machine cannot run is said, and counted; where it must run, it fails.

use std::{env, fmt::Display, fs::OpenOptions, io::Write};

use crate::Cluster;

/// Whether `test` may use the node tier. Where the tier cannot run, the reason is printed and noted for the closing line
/// of `cargo xtask test`.
///
/// # Panics
/// With `CI=true`, where the tier cannot run: CI must not pass without it.
#[must_use]
pub fn node_tier(test: &str) -> bool {
    needs(test, Cluster::node_tier_available())
}

/// Whether `test` has what it needs. Where it has not, the reason is printed and noted for the closing line of
/// `cargo xtask test`.
///
/// # Panics
/// With `CI=true`, where it has not: CI must not pass without it.
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
