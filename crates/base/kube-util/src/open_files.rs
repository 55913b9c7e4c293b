//! The limit on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for any node. Not the hard limit, set to 2^30 by some container runtimes: children inherit the limit, and
/// old-style daemons close every descriptor up to it when they start.
const MOST: u64 = 65_536;

/// Raises the soft limit on open files to the hard one, to `MOST` at most: the usual soft limit of 1,024 is for
/// programs that use `select`. A higher limit stays. An error is only logged, because it matters only when very many
/// files are open.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST, |hard| hard.min(MOST));
    // `None` is no limit.
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
}
