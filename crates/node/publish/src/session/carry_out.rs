use super::{Session, some_at_once};
use k8s_openapi::api::resource::v1::ResourceSlice;

use crate::{
    failure::{Failure, FailureKind},
    lock::PublishLock,
    plan::{Plan, Write},
    server::Answer,
};

/// Number of conflicts in a row retried at once.
const CONFLICTS: usize = 2;

impl Session {
    /// Writes stage by stage and evaluates each answer. Returns the failure that requires a pause.
    pub(super) async fn carry_out(&mut self, plan: Plan, lock: &PublishLock) -> Result<(), Failure> {
        for stage in plan.stages {
            // A superseded instance leaves the rest to the newer one.
            if !lock.may_write() {
                return Ok(());
            }
            let server = &self.server;
            let answers = some_at_once(stage.iter().map(|write| server.write(write)).collect()).await;
            let mut failure = None;
            let mut again = false;
            for (write, answer) in stage.iter().zip(answers) {
                self.status.send_modify(|status| match &answer {
                    Ok(_) => status.writes += 1,
                    Err(_) => status.failures += 1,
                });
                match answer {
                    Ok(held) => self.wrote(write, held),
                    Err(refused) => {
                        again = true;
                        let refused = self.refused(write, refused).await;
                        failure = failure.or(refused);
                    }
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            if again {
                return Ok(());
            }
        }
        Ok(())
    }

    fn wrote(&mut self, write: &Write, answer: Option<Answer>) {
        tracing::debug!(slice = write.name(), kind = write.kind(), "written");
        let Some(Answer { held, difference }) = answer else { return self.store.remove(write.metadata()) };
        if let Some(specs) = difference {
            let (sent, held) = *specs;
            for message in self.target.learn(write.name(), &sent, &held) {
                tracing::warn!("{message}");
            }
        }
        self.store.apply(held);
    }

    /// Evaluates a failure. Returns the failure if a pause is needed.
    async fn refused(&mut self, write: &Write, failure: Failure) -> Option<Failure> {
        match &failure.kind {
            FailureKind::Invalid { causes } => {
                let message = failure.message();
                tracing::error!("{message}; not sent again until the hardware changes");
                if let Write::Create(draft) | Write::Replace(draft) = write {
                    self.target.reject(draft, causes, message);
                }
                None
            }
            FailureKind::NotFound => {
                self.store.remove(write.metadata());
                None
            }
            FailureKind::Conflict => self.conflict(write, failure).await,
            _ => Some(failure),
        }
    }

    /// Reads a slice again after a conflict. A few conflicts are normal and retried at once.
    async fn conflict(&mut self, write: &Write, failure: Failure) -> Option<Failure> {
        match self.server.get(write.name()).await {
            Ok(None) => self.store.remove(write.metadata()),
            Ok(Some(slice)) if self.is_ours(&slice) => self.store.apply(slice.into()),
            Ok(Some(slice)) => {
                let text = format!(
                    "it exists and belongs to driver {} on {}; delete it, or give one of the two drivers another name",
                    slice.spec.driver,
                    slice.spec.node_name.as_deref().unwrap_or("no single node")
                );
                return Some(Failure { kind: FailureKind::Server, text, ..failure });
            }
            Err(failure) => return Some(failure),
        }
        self.conflicts += 1;
        (self.conflicts > CONFLICTS).then_some(failure)
    }

    fn is_ours(&self, slice: &ResourceSlice) -> bool {
        slice.spec.driver == self.identity.driver_name
            && slice.spec.node_name.as_ref() == Some(&self.identity.node_name)
    }
}
