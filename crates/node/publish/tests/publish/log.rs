//! What the publisher of one test logs.
//!
//! The subscriber is that of the whole program: one for each test would miss lines that a test without any came to
//! first. Tests run on threads of their own, and so do their publishers.

use std::{cell::RefCell, io, sync::Once};

use tracing_subscriber::EnvFilter;

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Begins to keep what is logged.
pub fn of_this_thread() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let filter = EnvFilter::new("off,tessera_publish=info");
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(|| Writer);
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    });
}

/// The lines logged on this thread so far.
pub fn lines() -> Vec<String> {
    LOG.with_borrow(|log| String::from_utf8_lossy(log).lines().map(str::to_owned).collect())
}

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
