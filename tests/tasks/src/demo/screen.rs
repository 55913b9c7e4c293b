//! Shows the demo's table: redrawn in place on a terminal, otherwise printed at each change.

use comfy_table::{ContentArrangement, Table, presets};

use super::say;
use super::view::{ClaimUse, ContainerView};

/// Writes the table where lines for people go.
#[derive(Default)]
pub struct Screen {
    shown: String,
    lines: usize,
}

impl Screen {
    /// Shows `uses` if they have changed.
    pub fn show(&mut self, uses: &[ClaimUse]) {
        let text = table(uses);
        if text == self.shown {
            return;
        }
        let (mut out, is_terminal) = say::out();
        if is_terminal && self.lines > 0 {
            // Move to the beginning of the last table, and clear everything below.
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
    // Some terminals report zero columns.
    if !say::out().1 || table.width().is_none_or(|width| width == 0) {
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

/// The containers' views, one below the other.
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
