//! Commands in README and docs, so that tests can tell whether each is one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::root;

/// Arguments that stand for others: `…`, `[nodes|cards]`, `up\|down`, `NAME`.
fn is_placeholder(argument: &str) -> bool {
    argument.contains(['…', '[', '|', '<']) || argument.chars().all(|letter| letter.is_ascii_uppercase())
}

fn arguments(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if !is_placeholder(word) {
            found.push(word.to_owned());
        } else if found.last().is_some_and(|last| last.starts_with('-')) {
            found.push("1".to_owned());
        } else {
            break;
        }
    }
    found
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The arguments of each command that begins with `program`, in code spans and console blocks of the pages at the root and in `docs/`,
/// each with its page. Arguments from the first placeholder on are left out, but values of options.
#[must_use]
pub fn documented_commands(program: &str) -> Vec<(PathBuf, Vec<String>)> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md"].iter().map(|name| root().join(name)).collect();
    pages(&root().join("docs"), &mut found);
    let mut commands = Vec::new();
    for page in found {
        let text = fs::read_to_string(&page).unwrap_or_default().replace("\\\n", " ");
        for start in ["`", "$ "] {
            let begins = format!("{start}{program} ");
            for (place, _) in text.match_indices(&begins) {
                let rest = &text[place + begins.len()..];
                let end = if start == "`" { rest.find('`') } else { rest.find(['\n', '#']) };
                commands.push((page.clone(), arguments(&rest[..end.unwrap_or(rest.len())])));
            }
        }
    }
    commands
}
