//! Limits the size of the daemons' logs. NVIDIA's programs write a few lines for each connecting and leaving client,
//! and never rotate their logs. These are in the node's memory, so a container starting programs without end would fill
//! the memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::control::end_of;
use super::supervisor::Supervisor;

/// Size limit of a log, bytes.
const MOST: u64 = 4 << 20;

/// Interval between two checks of all logs.
const INTERVAL: Duration = Duration::from_secs(30);

/// Size of a block of `st_blocks`, bytes (`stat(2)`).
const BLOCK: u64 = 512;

/// Limits the logs of all daemons until dropped.
pub(super) async fn look_after(supervisor: Arc<Supervisor>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        for slot in supervisor.all() {
            if let Err(error) = curb(&slot.directory.log, MOST) {
                tracing::warn!(directory = %slot.directory.log.display(), %error, "cannot keep logs small");
            }
        }
    }
}

/// Empties logs in a directory larger than `most`, and keeps their last lines in a file next to each. The programs have
/// their logs open, without harm: a program writing on at its old position leaves a hole, and holes take no space.
fn curb(directory: &Path, most: u64) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let path = entry.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if is_log && metadata.is_file() && metadata.blocks() * BLOCK > most {
            fs::write(path.with_extension("log.old"), end_of(&path)?)?;
            File::options().write(true).open(&path)?.set_len(0)?;
            tracing::info!(log = %path.display(), "emptied a log that had grown large");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_large_log_is_emptied_under_the_hands_of_its_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut at_position = File::create(path("control.log")).unwrap();
        let mut at_end = File::options().create(true).append(true).open(path("server.log")).unwrap();
        fs::write(path("start.log"), "small").unwrap();
        for log in [&mut at_position, &mut at_end] {
            for number in 0..20_000 {
                writeln!(log, "client {number} came").unwrap();
            }
        }
        curb(directory.path(), 64 << 10).unwrap();
        for (name, log) in [("control.log", &mut at_position), ("server.log", &mut at_end)] {
            let old = fs::read_to_string(path(&format!("{name}.old"))).unwrap();
            assert!(old.ends_with("client 19999 came\n") && old.len() < 64 << 10, "{} bytes", old.len());
            writeln!(log, "client 20000 came").unwrap();
            assert!(fs::metadata(path(name)).unwrap().blocks() * BLOCK <= 64 << 10);
            let now = fs::read(path(name)).unwrap();
            assert!(now.ends_with(b"client 20000 came\n"));
        }
        assert_eq!(fs::read_to_string(path("start.log")).unwrap(), "small");
        curb(directory.path(), 64 << 10).unwrap();
        assert!(fs::read(path("control.log")).unwrap().ends_with(b"client 20000 came\n"), "it is small now");
        assert!(curb(&path("none"), 0).is_err());
    }
}
