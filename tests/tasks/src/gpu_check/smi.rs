use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use roxmltree::{Document, Node, ParsingOptions};
use tessera_api::PciBusId;
use tessera_nvml::Library;

/// Directories of a driver's programs below its root: usual systems, GKE and COS.
const DIRECTORIES: &[&str] = &["usr/bin", "bin", "usr/local/nvidia/bin", "home/kubernetes/bin/nvidia/bin"];

const NAME: &str = "nvidia-smi";

/// The output of `nvidia-smi -q -x`.
pub(super) struct Log<'xml> {
    document: Document<'xml>,
}

/// The part about one card.
#[derive(Clone, Copy)]
pub(super) struct Gpu<'log> {
    node: Node<'log, 'log>,
}

/// The tool of the driver below `driver_root`.
pub(super) fn find(driver_root: &Path) -> Result<PathBuf> {
    find_program(driver_root, NAME).context("name it with --nvidia-smi")
}

/// A program of the driver below `driver_root`; for a driver installed here, also from `PATH`.
pub(super) fn find_program(driver_root: &Path, name: &str) -> Result<PathBuf> {
    let below = DIRECTORIES.iter().map(|directory| driver_root.join(directory));
    let path = env::var_os("PATH").filter(|_| driver_root == Path::new("/")).unwrap_or_default();
    let found = below
        .chain(env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file());
    found.with_context(|| format!("no {name} in {} below {}", DIRECTORIES.join(", "), driver_root.display()))
}

/// Runs the tool with the library of our own readings.
pub(super) fn query(tool: &Path, library: &Library) -> Result<String> {
    let mut command = Command::new(tool);
    command.args(["-q", "-x"]);
    if let Some(directory) = library.path().parent() {
        command.env("LD_LIBRARY_PATH", directory);
    }
    let output = command.output().with_context(|| format!("can't run {}", tool.display()))?;
    if !output.status.success() {
        bail!(
            "{} -q -x failed ({}): {}{}",
            tool.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} -q -x did not print UTF-8", tool.display()))
}

impl<'xml> Log<'xml> {
    pub(super) fn parse(xml: &'xml str) -> Result<Self> {
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document =
            Document::parse_with_options(xml, options).context("nvidia-smi -q -x printed no XML")?;
        let root = document.root_element().tag_name().name();
        ensure!(root == "nvidia_smi_log", "nvidia-smi -q -x printed <{root}> instead of <nvidia_smi_log>");
        Ok(Log { document })
    }

    /// A text about the machine, by the path of element names.
    pub(super) fn text(&self, path: &[&str]) -> Option<&str> {
        text(self.document.root_element(), path)
    }

    /// The cards in the tool's order.
    pub(super) fn gpus(&self) -> impl Iterator<Item = Gpu<'_>> {
        self.document
            .root_element()
            .children()
            .filter(|node| node.has_tag_name("gpu"))
            .map(|node| Gpu { node })
    }

    /// The card at an address, with its index.
    pub(super) fn gpu(&self, address: PciBusId) -> Option<(usize, Gpu<'_>)> {
        self.gpus().enumerate().find(|(_, gpu)| gpu.address() == Some(address))
    }
}

impl<'log> Gpu<'log> {
    /// A text about the card, by the path of element names.
    pub(super) fn text(self, path: &[&str]) -> Option<&'log str> {
        text(self.node, path)
    }

    /// The listed process ids; `None` where there is no list.
    pub(super) fn pids(self) -> Option<Vec<&'log str>> {
        let list = child(self.node, "processes")?;
        let processes = list.children().filter(|node| node.has_tag_name("process_info"));
        Some(processes.filter_map(|process| text(process, &["pid"])).collect())
    }

    /// Its address, parsed from `00000000:3B:00.0`.
    pub(super) fn address(self) -> Option<PciBusId> {
        let text = self.text(&["pci", "pci_bus_id"]).or_else(|| self.node.attribute("id"))?;
        text.trim().parse().ok()
    }
}

fn text<'log>(node: Node<'log, 'log>, path: &[&str]) -> Option<&'log str> {
    let found = path.iter().try_fold(node, |node, name| child(node, name))?;
    Some(found.text().unwrap_or_default().trim())
}

/// Names are compared without case and underscores: versions of the tool spell some differently (`cliqueId`,
/// `clique_id`).
fn child<'log>(node: Node<'log, 'log>, name: &str) -> Option<Node<'log, 'log>> {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    node.children().find(|child| child.is_element() && plain(child.tag_name().name()) == plain(name))
}
