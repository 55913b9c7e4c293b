//! Shows the demo's table: redrawn in place at a terminal, printed at each change elsewhere.

use std::io::{IsTerminal, Write, stderr};

use comfy_table::{ContentArrangement, Table, presets};

use super::view::{ClaimUse, ContainerView};

/// Where the table goes: standard error, so that standard output stays one line of JSON when that is asked for.
#[derive(Default)]
pub struct Screen {
    shown: String,
    lines: usize,
}

impl Screen {
    /// Shows `uses`, if that is news.
    pub fn show(&mut self, uses: &[ClaimUse]) {
        let text = table(uses);
        if text == self.shown {
            return;
        }
        let mut out = stderr().lock();
        if out.is_terminal() && self.lines > 0 {
            // Up to where the last table began, and clear what is below.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.lines);
        }
        let _ = writeln!(out, "{text}\n");
        self.lines = text.lines().count() + 1;
        self.shown = text;
    }
}

fn empty_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    // Some terminals say that they have no columns.
    if !stderr().is_terminal() || table.width().is_none_or(|width| width == 0) {
        table.set_width(150);
    }
    table
}

fn table(uses: &[ClaimUse]) -> String {
    let mut table = empty_table();
    table.set_header(["POD", "PHASE", "CLAIM", "DEVICES", "REMARK"]);
    for claim_use in uses {
        table.add_row([
            claim_use.pod.clone(),
            claim_use.phase.clone(),
            claim_use.name.clone().unwrap_or_default(),
            claim_use.devices.join(" "),
            claim_use.remark.clone(),
        ]);
    }
    table.to_string()
}

/// What each container says it sees, below one another.
pub fn container_views(views: &[(String, Option<ContainerView>)]) -> String {
    let mut table = empty_table();
    table.set_header(["CONTAINER OF", "DEVICE NODES", "ENVIRONMENT, OR WHAT ITS PROGRAM SAYS"]);
    for (pod, view) in views {
        let (nodes, environment) = view.as_ref().map_or_else(
            || ("(no report)".to_owned(), String::new()),
            |view| (view.device_nodes().join(" "), [&view.environment(), view.program()].concat().join("\n")),
        );
        table.add_row([pod.clone(), nodes, environment]);
    }
    table.to_string()
}
