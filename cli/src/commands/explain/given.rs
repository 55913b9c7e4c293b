//! An allocated claim.

use std::fmt::Write;

use super::Screen;
use crate::commands::allocate::some_of;
use crate::devices::of_fault;
use crate::explain::Given;
use crate::output::printable;

// Writing to a String cannot fail: the results of writeln! are dropped.
impl Screen {
    pub(super) fn given(&self, text: &mut String, given: &Given) {
        let node = given.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
        let users = match given.reserved_for.as_slice() {
            [] => "used by no pod".to_owned(),
            users => {
                let users: Vec<&str> = users.iter().map(String::as_str).collect();
                format!("for {}", some_of(&users, self.shown()))
            }
        };
        let _ = writeln!(text, "\n{}{node}, {users}", self.paint.bold(&given.claim));
        for device in given.devices.iter().take(self.shown()) {
            let of = if device.description.is_empty() { "" } else { " - " };
            let _ = writeln!(
                text,
                "  {} got {}{of}{}",
                printable(&device.request),
                self.paint.good(&printable(&device.device)),
                printable(&device.description)
            );
            if let Some(fault) = &device.fault {
                let _ =
                    writeln!(text, "    {}", self.paint.bad(&printable(&format!("it {}", of_fault(fault)))));
            }
            let why = match (device.published, device.before.len()) {
                (false, _) => "it is no longer published there".to_owned(),
                (true, 0) => "no other device comes before it in kube-scheduler's order".to_owned(),
                (true, 1) => {
                    "1 other device comes before it in kube-scheduler's order; today it is".to_owned()
                }
                (true, before) => {
                    format!("{before} other devices come before it in kube-scheduler's order; today they are")
                }
            };
            let _ = writeln!(text, "    {why}");
            self.reasons(text, &device.passed_over, "    ");
            if device.free_before > 0 {
                let _ = writeln!(
                    text,
                    "    {:>4}  free today: in use at the time, or excluded by a constraint or another request",
                    device.free_before
                );
            }
            if self.verbose {
                self.verdicts(text, &device.before);
            }
        }
        self.more(text, given.devices.len(), ["device", "devices"]);
        self.did_not_get(text, given);
        let _ = writeln!(text, "  {}", printable(&given.today));
    }
}
