use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::Module;
use crate::{
    cache::{CacheError, cache_directory},
    progress::{Event, Progress},
};

/// Number of lines shown of a failed build's output.
const SHOWN_LINES: usize = 40;

/// Why a tool is missing.
#[derive(Debug, Error)]
pub enum ToolError {
    /// There is no cache directory.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Go is not installed.
    #[error(
        "cannot run `go`: {0}. The test cluster is built from Go modules: install Go as the go.mod files in tests/tools ask for it"
    )]
    NoGo(#[source] io::Error),
    /// The module's files cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Its go.mod does not require a version of the tool.
    #[error("{} requires no version of {required}", .path.display())]
    NoVersion {
        /// The go.mod.
        path: PathBuf,
        /// The expected module.
        required: &'static str,
    },
    /// The cache cannot be written.
    #[error("cannot write {} in the cache: {source}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// `go build` failed.
    #[error("building {tool} failed:\n{output}")]
    Build {
        /// The tool.
        tool: String,
        /// The end of Go's output.
        output: String,
    },
    /// A program was requested whose module was not.
    #[error("{0} was not built: its module was not asked for")]
    NotBuilt(String),
    /// The building thread was lost.
    #[error("building was interrupted: {0}")]
    Interrupted(String),
}

/// Builds a module unless cached, and returns the folder with its programs.
pub(super) fn build(module: Module, progress: &Progress) -> Result<PathBuf, ToolError> {
    build_into(&cache_directory()?, module, progress)
}

fn build_into(cache: &Path, module: Module, progress: &Progress) -> Result<PathBuf, ToolError> {
    let (key, version) = key(module)?;
    let finished = cache.join(&key);
    if is_complete(&finished, module) {
        return Ok(finished);
    }
    let tool = format!("{} {version}", module.name());
    let lock_path = cache.join(format!("{key}.lock"));
    let write = |path: &Path| {
        let path = path.to_owned();
        move |source| ToolError::Write { path, source }
    };
    let lock = File::create(&lock_path).map_err(write(&lock_path))?;
    if lock.try_lock().is_err() {
        progress.report(&Event::WaitingFor { tool: tool.clone() });
        lock.lock().map_err(write(&lock_path))?;
    }
    if is_complete(&finished, module) {
        return Ok(finished);
    }

    progress.report(&Event::Building { tool: tool.clone(), expected: module.expected() });
    let begin = Instant::now();
    // Left by a killed build: nobody else builds while we hold the lock.
    let prefix = format!(".{key}-");
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_dir_all(entry.path()).map_err(write(&entry.path()))?;
        }
    }
    // Beside its final place, for an atomic rename; removed with the guard on errors.
    let building = tempfile::Builder::new().prefix(&prefix).tempdir_in(cache).map_err(write(cache))?;
    compile(module, &version, &tool, building.path())?;
    copy_files(module, &tool, building.path())?;
    if finished.exists() {
        fs::remove_dir_all(&finished).map_err(write(&finished))?;
    }
    fs::rename(building.path(), &finished).map_err(write(&finished))?;
    drop(building);
    progress.report(&Event::Built { tool, took: begin.elapsed() });
    Ok(finished)
}

fn is_complete(directory: &Path, module: Module) -> bool {
    let programs = module.packages().iter().map(|(_, program)| program);
    let files = module.files().iter().map(|(.., name)| name);
    programs.chain(files).all(|name| directory.join(name).exists())
}

pub(crate) fn go() -> Command {
    let mut command = Command::new("go");
    // Ignore a workspace around the clone, and flags meant for other modules.
    command.env("GOWORK", "off").env("GOFLAGS", "-buildvcs=false");
    command
}

fn compile(module: Module, version: &str, tool: &str, directory: &Path) -> Result<(), ToolError> {
    let mut command = go();
    command
        .current_dir(module.source())
        .env("CGO_ENABLED", if module.uses_c() { "1" } else { "0" })
        .arg("build")
        .arg("-ldflags")
        .arg(module.linker_flags(version));
    if !module.tags().is_empty() {
        command.arg("-tags").arg(module.tags());
    }
    match module.packages() {
        [(package, program)] => command.arg("-o").arg(directory.join(program)).arg(package),
        several => command.arg("-o").arg(directory).args(several.iter().map(|(package, _)| package)),
    };
    let output = command.output().map_err(ToolError::NoGo)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(tool, &output))
}

/// Copies the files of a module's programs from Go's own cache.
fn copy_files(module: Module, tool: &str, directory: &Path) -> Result<(), ToolError> {
    for (required, path, name) in module.files() {
        let mut list = go();
        list.current_dir(module.source()).args(["list", "-m", "-f", "{{.Dir}}", required]);
        let output = list.output().map_err(ToolError::NoGo)?;
        if !output.status.success() {
            return Err(failed(tool, &output));
        }
        let from = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(path);
        copy(&from, &directory.join(name))?;
    }
    Ok(())
}

/// Copies a file, or a folder of files. Files of Go's cache are read-only, and so would copies made by the system be.
fn copy(from: &Path, to: &Path) -> Result<(), ToolError> {
    let unread = |source| ToolError::Source { path: from.to_owned(), source };
    let unwritten = |source| ToolError::Write { path: to.to_owned(), source };
    if from.is_dir() {
        fs::create_dir_all(to).map_err(unwritten)?;
        for entry in fs::read_dir(from).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::write(to, fs::read(from).map_err(unread)?).map_err(unwritten)
}

fn failed(tool: &str, output: &Output) -> ToolError {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    ToolError::Build { tool: tool.to_owned(), output: end }
}

/// Folder name in the cache, and the tool's version. The name covers all inputs of the programs.
fn key(module: Module) -> Result<(String, String), ToolError> {
    let source = module.source();
    let mut digest = Sha256::new();
    let mut go_mod = String::new();
    for path in sources(&source)? {
        let text =
            fs::read(&path).map_err(|error| ToolError::Source { path: path.clone(), source: error })?;
        digest.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(&text);
        if path == source.join("go.mod") {
            go_mod = String::from_utf8_lossy(&text).into_owned();
        }
    }
    let version = match module.required() {
        Some(required) => required_version(&go_mod, required)
            .ok_or_else(|| ToolError::NoVersion { path: source.join("go.mod"), required })?,
        None => "v0".to_owned(),
    };
    let go = go_version()?;
    let flags = module.linker_flags(&version);
    for part in [go.as_str(), &flags, module.tags(), if module.uses_c() { "c" } else { "static" }] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let digest: String = digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Ok((format!("{}-{version}-{go}-{digest}", module.name()), version))
}

/// The source files of a module's programs, sorted; also the files of modules inside its folder.
fn sources(directory: &Path) -> Result<Vec<PathBuf>, ToolError> {
    let failed = |source| ToolError::Source { path: directory.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            paths.extend(sources(&path)?);
        } else if name == "go.mod" || name == "go.sum" || name.ends_with(".go") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn required_version(go_mod: &str, required: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(required)).then(|| words.next().map(str::to_owned)).flatten()
    })
}

fn go_version() -> Result<String, ToolError> {
    let output = go().arg("env").arg("GOVERSION").output().map_err(ToolError::NoGo)?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !version.is_empty() {
        return Ok(version);
    }
    Err(ToolError::NoGo(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_names_its_version() {
        for module in Module::ALL {
            let (key, version) = key(*module).unwrap();
            assert!(key.starts_with(&format!("{}-{version}-go", module.name())), "{key}");
        }
    }

    #[test]
    fn two_at_once_build_once_and_a_broken_cache_is_mended() {
        let cache = tempfile::tempdir().unwrap();
        let built = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = built.clone();
        let progress = Progress::new(move |event| {
            if matches!(event, Event::Built { .. }) {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        let build = || build_into(cache.path(), Module::Testimage, &progress).unwrap();
        let (first, second) = std::thread::scope(|scope| {
            let (first, second) = (scope.spawn(build), scope.spawn(build));
            (first.join().unwrap(), second.join().unwrap())
        });
        assert_eq!(first, second);
        assert_eq!(built.load(std::sync::atomic::Ordering::SeqCst), 1);

        fs::remove_file(first.join("testimage")).unwrap();
        assert_eq!(build(), first);
        assert!(Command::new(first.join("testimage")).arg("true").status().unwrap().success());
        assert_eq!(built.load(std::sync::atomic::Ordering::SeqCst), 2);
        let left = fs::read_dir(cache.path()).unwrap().count();
        assert_eq!(left, 2, "the programs and the lock are all there is");
    }

    #[test]
    fn versions_are_found_alone_and_in_blocks() {
        let text =
            "module a\n\nrequire b.example/c v1.2.3\n\nrequire (\n\td.example/e v0.1.0 // indirect\n)\n";
        assert_eq!(required_version(text, "b.example/c").as_deref(), Some("v1.2.3"));
        assert_eq!(required_version(text, "d.example/e").as_deref(), Some("v0.1.0"));
        assert_eq!(required_version(text, "d.example"), None);
    }
}
