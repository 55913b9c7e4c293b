//! The blocks of code in a page.

use std::fs;

use tessera_harness::workspace;

/// A fenced block that can be typed.
pub struct Block {
    /// The page's path in the repository.
    pub page: &'static str,
    /// Line of the fence, counted from 1.
    pub line: usize,
    /// What is between the fences.
    pub code: Code,
}

pub enum Code {
    /// Of a console.
    Commands(Vec<Command>),
    /// YAML, to be applied.
    Manifests(String),
}

/// A command of a console, with the lines that continue it.
pub struct Command {
    /// Its first line in the page.
    pub line: usize,
    pub text: String,
}

impl Command {
    /// Whether it begins with these words, however many spaces are between them.
    pub fn begins_with(&self, beginning: &str) -> bool {
        let words: Vec<&str> = self.text.split_whitespace().collect();
        words.join(" ").starts_with(beginning)
    }
}

/// The blocks of a page, in order, without those that are `text`.
///
/// # Panics
/// A block is of another kind, or without fences.
pub fn of_page(page: &'static str) -> Vec<Block> {
    let text = fs::read_to_string(workspace::root().join(page)).unwrap();
    let mut lines = text.lines().zip(1..).peekable();
    let (mut blocks, mut before) = (Vec::new(), "");
    while let Some((line, number)) = lines.next() {
        assert!(!(before.is_empty() && line.starts_with("    ")), "{page}:{number}: code stands in fences");
        before = line;
        let Some(kind) = line.strip_prefix("```") else { continue };
        let inside: Vec<(&str, usize)> =
            lines.by_ref().take_while(|(line, _)| !line.starts_with("```")).collect();
        let code = match kind {
            "console" => Code::Commands(commands(&inside)),
            "yaml" => Code::Manifests(inside.iter().map(|(line, _)| format!("{line}\n")).collect()),
            "text" => continue,
            other => panic!("{page}:{number}: nobody knows how to type {other:?}"),
        };
        blocks.push(Block { page, line: number, code });
    }
    blocks
}

/// Lines after a command are its output, but where its line ends with a backslash.
fn commands(lines: &[(&str, usize)]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut continues = false;
    for (line, number) in lines {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(text), _) => commands.push(Command { line: *number, text: text.to_owned() }),
            (None, Some(command)) if continues => command.text.push_str(&format!("\n{line}")),
            _ => {}
        }
        continues = line.ends_with('\\');
    }
    commands
}
