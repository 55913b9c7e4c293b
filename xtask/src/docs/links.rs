//! Relative links of Markdown pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A Markdown file.
#[derive(Debug)]
pub struct Page {
    /// From the repository's root.
    pub path: PathBuf,
    anchors: BTreeSet<String>,
    /// Relative links as written.
    links: Vec<String>,
}

impl Page {
    fn new(path: PathBuf, text: &str) -> Self {
        let mut page = Page { path, anchors: BTreeSet::new(), links: Vec::new() };
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let before = seen.entry(anchor.clone()).or_default();
                    let number = std::mem::replace(before, *before + 1);
                    page.anchors.insert(if number == 0 { anchor } else { format!("{anchor}-{number}") });
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. }) if !dest_url.contains(':') => {
                    page.links.push(dest_url.into_string());
                }
                _ => {}
            }
        }
        page
    }

    /// The files linked from the page, from the repository's root.
    pub fn targets(&self) -> impl Iterator<Item = PathBuf> {
        self.links.iter().map(|link| self.resolve(link).0)
    }

    /// File and anchor of a link.
    fn resolve<'l>(&self, link: &'l str) -> (PathBuf, Option<&'l str>) {
        let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        if file.is_empty() {
            return (self.path.clone(), anchor);
        }
        let mut path = self.path.parent().map(Path::to_owned).unwrap_or_default();
        for part in Path::new(file).components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                Component::CurDir => {}
                other => path.push(other),
            }
        }
        (path, anchor)
    }
}

/// The anchor of a heading, in the form of GitHub and mdBook.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// All Markdown files known to git.
///
/// # Errors
/// git cannot be run, or a file cannot be read.
pub fn pages(root: &Path) -> Result<Vec<Page>> {
    let listed = Command::new("git").args(["ls-files", "-z", "--", "*.md"]).current_dir(root).output();
    let listed = listed.context("cannot run git")?;
    ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).context("git names a file that is no UTF-8")?;
    let read = |name: &str| {
        let text = fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        Ok(Page::new(PathBuf::from(name), &text))
    };
    names.split_terminator('\0').map(read).collect()
}

/// Links to missing files or headings.
pub fn broken(root: &Path, pages: &[Page]) -> Vec<String> {
    let anchors: BTreeMap<&Path, &BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_path(), &page.anchors)).collect();
    let mut broken = Vec::new();
    for page in pages {
        for link in &page.links {
            let (file, anchor) = page.resolve(link);
            let is_there = root.join(&file).exists()
                && match (anchor, anchors.get(file.as_path())) {
                    (Some(anchor), Some(anchors)) => anchors.contains(anchor),
                    _ => true,
                };
            if !is_there {
                broken.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_nothing_are_found() {
        let one = Page::new(
            "docs/one.md".into(),
            "# A `b`: c\n[x](#a-b-c) [y](two.md#d-1) [z](two.md#e) [w](no.md)",
        );
        let two =
            Page::new("docs/two.md".into(), "# D\n# D\n```\n[no](nowhere.md)\n```\n[far](https://a.b/c)");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("docs")).unwrap();
        for page in [&one, &two] {
            std::fs::write(folder.path().join(&page.path), "").unwrap();
        }
        assert_eq!(broken(folder.path(), &[one, two]), ["docs/one.md: two.md#e", "docs/one.md: no.md"]);
    }
}
