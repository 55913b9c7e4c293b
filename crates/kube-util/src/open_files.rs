//! How many files the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as any node needs. Not all that a hard limit may allow, which some container runtimes set to 2^30: children
/// inherit it, and daemons of the old school close every descriptor up to it when they start.
const MOST: u64 = 65_536;

/// Raises the soft limit on open files to the hard one, `MOST` at most: the usual soft limit of 1,024 is for programs
/// that use `select`. One that is higher already stays. An error is logged only, for all goes well without until very much
/// is open.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST, |hard| hard.min(MOST));
    // None is no limit.
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
}
