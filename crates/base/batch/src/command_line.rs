use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::error::BatchError;
use crate::options::Options;
use crate::script::Script;
use crate::unsupported;

const REQUEUE: &str = "requeue";
const NO_REQUEUE: &str = "no-requeue";

/// The options of a command line. They win over the options of a script.
#[derive(Debug, Clone)]
pub struct CommandLine(ArgMatches);

impl FromArgMatches for CommandLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(CommandLine(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl Args for CommandLine {
    fn augment_args(command: Command) -> Command {
        // As with getopt_long(3): a later option wins, and beginnings of names will do.
        let command = command.args_override_self(true).infer_long_args(true);
        let flag = |name: &'static str, other: &'static str, help: &'static str| {
            let flag = Arg::new(name).long(name).action(ArgAction::SetTrue).overrides_with(other);
            flag.help(help).help_heading("Job")
        };
        let command = Options::augment_args(command)
            .arg(flag(
                REQUEUE,
                NO_REQUEUE,
                "Begin again after an eviction or the loss of a node (the default)",
            ))
            .arg(flag(NO_REQUEUE, REQUEUE, "End after an eviction or the loss of a node"));
        unsupported::augment(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl CommandLine {
    /// The options of both, and notes about options without effect.
    ///
    /// # Errors
    /// An option cannot be read, is unknown, or not possible in Kubernetes.
    pub fn with(&self, script: Option<&Script>) -> Result<(Options, Vec<String>), BatchError> {
        let (mut options, mut notes) = (Options::default(), Vec::new());
        for directive in script.map(Script::directives).unwrap_or_default() {
            let (line, words) = directive?;
            let read = parse(&words).and_then(|given| given.add_to(&mut options));
            notes.extend(read.map_err(|error| error.at(line))?);
        }
        notes.extend(self.add_to(&mut options)?);
        Ok((options, notes))
    }

    /// The value of `-o` or `--output`, in Slurm a file.
    #[must_use]
    pub fn output(&self) -> Option<&str> {
        self.0.get_one::<String>("output").map(String::as_str)
    }

    fn add_to(&self, options: &mut Options) -> Result<Vec<String>, BatchError> {
        let notes = unsupported::check(&self.0)?;
        options.update_from_arg_matches(&self.0).map_err(|error| of_clap(&error))?;
        options.no_requeue = self.0.get_flag(NO_REQUEUE) || (options.no_requeue && !self.0.get_flag(REQUEUE));
        Ok(notes)
    }
}

fn parse(words: &[String]) -> Result<CommandLine, BatchError> {
    if let [word] = words
        && ["hetjob", "packjob"].contains(&word.as_str())
    {
        return Err(BatchError::refused(word, unsupported::HETEROGENEOUS));
    }
    let command = Command::new("#SBATCH").no_binary_name(true).disable_help_flag(true);
    let matches = CommandLine::augment_args(command).try_get_matches_from(words);
    matches.map(CommandLine).map_err(|error| of_clap(&error))
}

fn of_clap(error: &clap::Error) -> BatchError {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
    {
        return BatchError::Unknown(option.clone());
    }
    // The lines below the first are about clap's program.
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    BatchError::Value(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}
