//! `cargo xtask docs`: the pages of `docs/` as a site.

mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tessera_workspace as workspace;

use crate::cargo_tool::CargoTool;
use links::Page;

const TOOL: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
    // Fast to build; its own speed does not matter.
    arguments: &["--debug", "--no-default-features"],
    expected: Duration::from_secs(40),
};

/// Arguments of `cargo xtask docs`.
#[derive(Args)]
#[command(
    after_help = "Checks all relative links of the repository's Markdown first. mdBook is found in the cache, or installed there.

Examples:
  cargo xtask docs            the site is in target/book, its first page is printed
  cargo xtask docs --check    only the links

Exit code: 0 when the site was built, 1 when a link leads nowhere or mdBook cannot be had."
)]
pub struct DocsArguments {
    /// Check the links and build nothing.
    #[arg(long)]
    check: bool,
}

/// Checks the links, then builds the site.
///
/// # Errors
/// A page cannot be read, or mdBook cannot be installed or fails.
pub fn run(arguments: &DocsArguments) -> Result<ExitCode> {
    let root = workspace::root();
    let pages = links::pages(root)?;
    let broken = links::broken(root, &pages);
    for link in &broken {
        println!("{link}");
    }
    if !broken.is_empty() {
        println!("{} links lead nowhere", broken.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("the links of {} pages lead somewhere", pages.len());
    if arguments.check {
        return Ok(ExitCode::SUCCESS);
    }
    let tool = TOOL.find()?;
    let source = root.join("target/book-source");
    gather(root, &pages, &source)?;
    let built = Command::new(tool).arg("build").current_dir(&source).stdin(Stdio::null()).status();
    ensure!(built.context("cannot run mdbook")?.success(), "mdbook build failed");
    println!("{}", root.join("target/book/index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Copies the pages and the files linked from them, so that links out of `docs/` work in the site, too.
fn gather(root: &Path, pages: &[Page], source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).context("cannot read docs/SUMMARY.md")?;
    let mut summary = summary.replace("](", "](docs/");
    let listed: BTreeSet<PathBuf> = pages
        .iter()
        .find(|page| page.path.ends_with("docs/SUMMARY.md"))
        .into_iter()
        .flat_map(Page::targets)
        .collect();
    let mut wanted: BTreeSet<PathBuf> = listed.clone();
    let mut others = BTreeSet::new();
    for page in pages.iter().filter(|page| listed.contains(&page.path)) {
        wanted.extend(page.targets());
        others.extend(page.targets().filter(|target| is_markdown(target) && !listed.contains(target)));
    }
    if !others.is_empty() {
        summary.push_str("\n# In the repository\n\n");
    }
    for page in &others {
        summary.push_str(&format!("- [{0}]({0})\n", page.display()));
    }
    for file in wanted.iter().filter(|file| root.join(file).is_file()) {
        let to = source.join("src").join(file);
        fs::create_dir_all(to.parent().unwrap_or(source))?;
        fs::copy(root.join(file), &to).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    fs::write(source.join("src/SUMMARY.md"), summary)?;
    let settings = fs::read_to_string(root.join("book.toml")).context("cannot read book.toml")?;
    let settings = settings.replace("\"docs\"", "\"src\"").replace("target/book", "../book");
    fs::write(source.join("book.toml"), settings)?;
    Ok(())
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_all_pages_lead_somewhere() {
        let root = workspace::root();
        let pages = links::pages(root).unwrap();
        assert!(pages.len() > 50);
        assert_eq!(links::broken(root, &pages), Vec::<String>::new());
    }

    #[test]
    fn the_summary_lists_every_page_of_docs() {
        let pages = links::pages(workspace::root()).unwrap();
        let summary = pages.iter().find(|page| page.path.ends_with("docs/SUMMARY.md")).unwrap();
        let listed: BTreeSet<PathBuf> = summary.targets().collect();
        let of_docs = pages.iter().filter(|page| page.path.starts_with("docs") && page.path != summary.path);
        let missing: Vec<&Path> =
            of_docs.map(|page| page.path.as_path()).filter(|path| !listed.contains(*path)).collect();
        assert_eq!(missing, Vec::<&Path>::new());
    }
}
