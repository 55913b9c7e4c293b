//! Where the tasks' output goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};

use super::options::Options;
use crate::{job::Job, layout::Layout, message::Stream};

/// Writes the output of all tasks.
pub struct Output {
    /// Digits of the largest task's number.
    label: Option<usize>,
    targets: Mutex<Targets>,
}

struct Targets {
    out: Target,
    /// None: as `out`.
    err: Option<Target>,
    /// Streams in the middle of a line.
    open: BTreeSet<(u32, Stream)>,
}

enum Target {
    Nowhere,
    Standard(Stream),
    File(File),
    /// Of each task.
    Files(BTreeMap<u32, File>),
}

impl Output {
    /// Opens the files.
    pub fn new(options: &Options, job: &Job, layout: &Layout) -> Result<Self> {
        let open = |pattern: &str| Target::open(pattern, job, layout);
        let (out, err) = match (options.output.as_deref(), options.error.as_deref()) {
            (None, None) => (Target::Standard(Stream::Output), Some(Target::Standard(Stream::Error))),
            (None, Some(err)) => (Target::Standard(Stream::Output), Some(open(err)?)),
            (Some(out), None) => (open(out)?, None),
            (Some(out), Some(err)) if out == err => (open(out)?, None),
            (Some(out), Some(err)) => (open(out)?, Some(open(err)?)),
        };
        let last = layout.tasks.iter().sum::<u32>() - 1;
        let label = options.label.then(|| last.to_string().len());
        Ok(Self { label, targets: Mutex::new(Targets { out, err, open: BTreeSet::new() }) })
    }

    /// Writes a piece of a task's output.
    pub fn write(&self, task: u32, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let labelled = match self.label {
            Some(width) => {
                let label = format!("{task:>width$}: ");
                let open = targets.open.remove(&(task, stream));
                if !bytes.ends_with(b"\n") {
                    targets.open.insert((task, stream));
                }
                Some(with_label(label.as_bytes(), bytes, open))
            }
            None => None,
        };
        let bytes = labelled.as_deref().unwrap_or(bytes);
        let targets = &mut *targets;
        let target = if stream == Stream::Error { targets.err.as_mut() } else { None };
        target.unwrap_or(&mut targets.out).write(task, bytes)
    }
}

/// The label before each line; not before the first if a line was begun.
fn with_label(label: &[u8], bytes: &[u8], open: bool) -> Vec<u8> {
    let mut labelled = Vec::with_capacity(bytes.len() + label.len() * 8);
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if number > 0 || !open {
            labelled.extend_from_slice(label);
        }
        labelled.extend_from_slice(line);
    }
    labelled
}

impl Target {
    fn open(pattern: &str, job: &Job, layout: &Layout) -> Result<Self> {
        if pattern == "none" {
            return Ok(Self::Nowhere);
        }
        let name = |(number, host): (u32, usize)| {
            let node = &job.hosts[layout.hosts[host]].name;
            (number, file_name(pattern, number, host, node))
        };
        let names: BTreeMap<u32, String> = layout.of_tasks().into_iter().map(name).collect();
        let mut files = BTreeMap::new();
        for name in names.values() {
            if !files.contains_key(name) {
                files.insert(
                    name.clone(),
                    File::create(name).with_context(|| format!("failed to make {name}"))?,
                );
            }
        }
        if files.len() == 1
            && let Some((_, file)) = files.pop_first()
        {
            return Ok(Self::File(file));
        }
        let of_tasks = names.into_iter().map(|(task, name)| Ok((task, files[&name].try_clone()?)));
        Ok(Self::Files(of_tasks.collect::<io::Result<_>>()?))
    }

    fn write(&mut self, task: u32, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Standard(Stream::Error) => io::stderr().write_all(bytes),
            Self::Standard(_) => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Self::File(file) => file.write_all(bytes),
            Self::Files(files) => files.get_mut(&task).map_or(Ok(()), |file| file.write_all(bytes)),
        }
    }
}

/// srun(1), "FILENAME PATTERN": the letters with a meaning here, with a width before the letter for numbers.
fn file_name(pattern: &str, task: u32, node: usize, name: &str) -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut result = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        result.push_str(before);
        let digits =
            after.len() - after.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let width = after[..digits].parse::<usize>().unwrap_or(0).min(10);
        let mut letters = after[digits..].chars();
        match letters.next() {
            Some('t') => result.push_str(&format!("{task:0width$}")),
            Some('n') => result.push_str(&format!("{node:0width$}")),
            Some('N') => result.push_str(name.split('.').next().unwrap_or(name)),
            Some('j' | 'J' | 'A') => result.push_str(&variable("SLURM_JOB_ID")),
            Some('a') => result.push_str(&variable("SLURM_ARRAY_TASK_ID")),
            Some('x') => result.push_str(&variable("SLURM_JOB_NAME")),
            Some('u') => result.push_str(&variable("USER")),
            Some('%') => result.push('%'),
            Some(other) => result.extend(['%', other]),
            None => result.push('%'),
        }
        rest = letters.as_str();
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// srun(1), `--label` and "FILENAME PATTERN".
    #[test]
    fn lines_have_labels_and_files_names() {
        assert_eq!(with_label(b"3: ", b"a\nb\n", false), b"3: a\n3: b\n");
        assert_eq!(with_label(b"3: ", b"rest\nb", true), b"rest\n3: b");
        assert_eq!(file_name("out-%t", 7, 1, "n-1.n"), "out-7");
        assert_eq!(file_name("%3t_%n_%N_100%%", 7, 1, "n-1.n"), "007_1_n-1_100%");
        assert_eq!(file_name("plain%", 7, 1, "n"), "plain%");
    }
}
