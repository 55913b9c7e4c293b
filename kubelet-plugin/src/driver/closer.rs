//! Closing the driver library for a while: the driver resets no card opened by a program.

use tokio::sync::{mpsc, oneshot, watch};

/// Whether the library is closed by request. Until the next opening the last look at the cards holds.
pub type LetGo = watch::Receiver<bool>;

/// Asks the keeper of the library to close the library. Clones ask the same keeper.
#[derive(Clone, Debug)]
pub struct DriverCloser(mpsc::Sender<Request>);

/// The library is closed while this exists: this process has no card open.
#[derive(Debug)]
pub struct Closed {
    _until_dropped: oneshot::Sender<()>,
}

/// One wish to have the library closed.
pub(super) struct Request {
    /// The purpose, as a sentence: the reason for the missing library.
    pub(super) why: String,
    answer: oneshot::Sender<Result<Closed, String>>,
}

impl DriverCloser {
    /// A closer, and the receiver for its keeper.
    pub(super) fn new() -> (Self, mpsc::Receiver<Request>) {
        let (requests, received) = mpsc::channel(1);
        (Self(requests), received)
    }

    /// Waits until the library is open, then until all users have closed the library.
    ///
    /// # Errors
    /// The obstacle, as a sentence.
    pub async fn close(&self, why: String) -> Result<Closed, String> {
        let (answer, answered) = oneshot::channel();
        let ending = || "the plugin is ending".to_owned();
        self.0.send(Request { why, answer }).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())?
    }
}

impl Request {
    /// Hands the closed library to the requester, and returns when the requester is done.
    pub(super) async fn keep_closed(self) {
        let (until_dropped, dropped) = oneshot::channel();
        if self.answer.send(Ok(Closed { _until_dropped: until_dropped })).is_ok() {
            // An error means the same: dropped.
            let _ = dropped.await;
        }
    }

    /// Answers the requester with the reason for the open library.
    pub(super) fn refuse(self, why: String) {
        // The requester may have gone.
        let _ = self.answer.send(Err(why));
    }
}

/// Returns when the library is not closed by request.
pub async fn is_not_let_go(let_go: &mut LetGo) {
    // An error means the end of the keeper: nothing is closed by request then.
    let _ = let_go.wait_for(|is_let_go| !is_let_go).await;
}
