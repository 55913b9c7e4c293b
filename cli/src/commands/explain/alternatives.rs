//! Alternatives of `firstAvailable` before the first fitting one.

use std::fmt::Write;

use super::Screen;
use crate::explain::{Given, RequestDiagnosis};
use crate::output::printable;

// Writing to a String cannot fail: the results of writeln! are dropped.
impl Screen {
    /// For a node with devices for a later alternative.
    pub(super) fn would_not_get(&self, text: &mut String, passed: &[RequestDiagnosis]) {
        for alternative in passed {
            let RequestDiagnosis { request, devices, free, wanted, .. } = alternative;
            let each_would = wanted.is_some_and(|wanted| *free >= wanted);
            let together = if each_would { ", but not together with the other requests" } else { "" };
            let said = format!(
                "{request} comes first: {free} of {devices} devices are free for it, {} needed{together}",
                needed(*wanted)
            );
            let _ = writeln!(text, "    {}", printable(&said));
            self.reasons(text, &alternative.reasons, "      ");
        }
    }

    /// For an allocated claim.
    pub(super) fn did_not_get(&self, text: &mut String, given: &Given) {
        for alternative in &given.passed_alternatives {
            let RequestDiagnosis { request, devices, free, wanted, .. } = alternative;
            let said = format!(
                "{request} comes first: today {free} of {devices} devices are free for it, {} needed",
                needed(*wanted)
            );
            let _ = writeln!(text, "  {}", printable(&said));
            self.reasons(text, &alternative.reasons, "    ");
        }
        if let Some(hint) = &given.hint {
            let _ = writeln!(text, "  {}", self.paint.hint(&printable(hint)));
        }
    }
}

fn needed(wanted: Option<usize>) -> String {
    wanted
        .map_or("all are".to_owned(), |wanted| format!("{wanted} {}", if wanted == 1 { "is" } else { "are" }))
}
