//! `kubectl gpu run`: batch jobs in Slurm's words.

mod account;
mod apply;
mod follow;

use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::{Value, json};
use tessera_batch::{BatchError, DEFAULTS_CONFIG_MAP, Defaults, Job, Objects, Program, STEP_KEY, Script};

use crate::api_server::{block_on, connect_patiently, failed};
use crate::arguments::{Format, RunArguments};
use crate::output::{self, CommandError, Verdict};

/// Runs the command.
///
/// # Errors
/// The job cannot be made of its options, or the API server refuses it.
pub fn run(arguments: &RunArguments) -> Result<Verdict, CommandError> {
    let all: Vec<OsString> = std::env::args_os().collect();
    let program = program(&arguments.words, &all)?;
    let script = match &program {
        Some(Program::Script { script, .. }) => Some(script),
        _ => None,
    };
    let (options, mut notes) = arguments.options.with(script).map_err(|error| in_file(error, script))?;
    let make = |defaults: &Defaults| -> Result<(Job, Vec<String>), CommandError> {
        Ok(Job::new(&options, program.clone(), defaults)?)
    };
    let of_file = arguments.defaults.as_deref().map(defaults_of_file).transpose()?;
    if let Some(format) = printed(arguments.options.output()) {
        // The last one is about the command line, where it is no file.
        if let Some(index) = notes.iter().rposition(|note| note.starts_with("--output:")) {
            notes.remove(index);
        }
        let (job, more) = make(&of_file.unwrap_or_default())?;
        tell(notes.into_iter().chain(more));
        output::print(&text(format, &Objects::of(&job))?)?;
        return Ok(Verdict::Yes);
    }
    if program.is_none() && options.wrap.is_none() {
        return Err(BatchError::NoProgram.into());
    }
    block_on(async {
        let (client, namespace) = connect_patiently(&arguments.connection).await?;
        let namespace = match &options.account {
            Some(account) => account::namespace(&client, account).await?,
            None => namespace,
        };
        let defaults = match of_file {
            Some(defaults) => defaults,
            None => defaults_of_namespace(&client, &namespace).await?,
        };
        let (mut job, more) = make(&defaults)?;
        tell(notes.into_iter().chain(more));
        apply::apply(&client, &namespace, &mut job).await?;
        let follows = arguments.follow || (!arguments.detach && std::io::stdout().is_terminal());
        if !follows {
            output::print(&format!("job {namespace}/{} is submitted\n", job.name))?;
            return Ok(Verdict::Yes);
        }
        follow::follow(&client, &namespace, &job).await
    })
}

/// The script or command of the words behind the options; `all` is the whole command line, which tells them apart.
fn program(words: &[String], all: &[OsString]) -> Result<Option<Program>, CommandError> {
    let Some((first, arguments)) = words.split_first() else { return Ok(None) };
    let before = all.len().checked_sub(words.len() + 1).and_then(|index| all.get(index));
    if before.is_some_and(|word| word == "--") {
        return Ok(Some(Program::Command(words.to_vec())));
    }
    let text = match first.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        file => read(Path::new(file)).map_err(|error| with_way(&error))?,
    };
    let name = if first == "-" { "job" } else { first };
    let script = Script::new(name, &text).map_err(|error| with_way(&format!("{first}: {error}")))?;
    Ok(Some(Program::Script { script, arguments: arguments.to_vec() }))
}

/// Who leaves out `--` means a command.
fn with_way(error: &impl std::fmt::Display) -> CommandError {
    CommandError::Asked(format!("{error} (a command comes after --)"))
}

fn read(file: &Path) -> Result<String, CommandError> {
    fs::read_to_string(file).map_err(|error| CommandError::Asked(format!("{}: {error}", file.display())))
}

/// An error in a line of the script, with the script's name.
fn in_file(error: BatchError, script: Option<&Script>) -> CommandError {
    match (&error, script) {
        (BatchError::Line { .. }, Some(script)) => CommandError::Asked(format!("{}, {error}", script.name)),
        _ => error.into(),
    }
}

fn tell(notes: impl IntoIterator<Item = String>) {
    for note in notes {
        // If standard error is closed, nobody reads notes.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("note: {note}\n").as_bytes());
    }
}

/// Of `-o`, which in Slurm names a file.
fn printed(output: Option<&str>) -> Option<Format> {
    match output {
        Some("yaml") => Some(Format::Yaml),
        Some("json") => Some(Format::Json),
        _ => None,
    }
}

fn defaults_of_file(file: &Path) -> Result<Defaults, CommandError> {
    let found: ConfigMap = serde_saphyr::from_str(&read(file)?)
        .map_err(|error| CommandError::Asked(format!("{}: {error}", file.display())))?;
    Ok(Defaults::new(&found.data.unwrap_or_default())?)
}

async fn defaults_of_namespace(client: &Client, namespace: &str) -> Result<Defaults, CommandError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = maps.get_opt(DEFAULTS_CONFIG_MAP).await.map_err(failed("ConfigMap gpu-run"))?;
    Ok(Defaults::new(&found.and_then(|map| map.data).unwrap_or_default())?)
}

/// All objects but the Secret, whose content is nobody's to print.
fn text(format: Format, objects: &Objects) -> Result<String, CommandError> {
    fn value(object: &impl Serialize) -> Result<Value, CommandError> {
        serde_json::to_value(object).map_err(|error| CommandError::Write(error.to_string()))
    }
    let mut all = Vec::new();
    all.extend(objects.template.as_ref().map(value));
    all.extend(objects.script.as_ref().map(value));
    all.extend(objects.service.as_ref().map(value));
    all.push(value(&objects.job));
    let all = all.into_iter().collect::<Result<Vec<Value>, CommandError>>()?;
    if let Format::Json = format {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": all });
        let text = serde_json::to_string_pretty(&list);
        return Ok(text.map_err(|error| CommandError::Write(error.to_string()))? + "\n");
    }
    let mut text = String::new();
    if let Some(service) = &objects.service {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let namespace =
            service.metadata.namespace.as_ref().map_or(String::new(), |name| format!(" -n {name}"));
        text += &format!(
            "# The pods wait for the Secret by which they know each other, made once for each job:\n#   kubectl create \
             secret generic {name}{namespace} --from-literal={STEP_KEY}=$(openssl rand -hex 32)\n"
        );
    }
    for object in &all {
        let object =
            serde_saphyr::to_string(object).map_err(|error| CommandError::Write(error.to_string()))?;
        text += &format!("---\n{object}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_two_dashes_is_a_command() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let all = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<OsString>>();
        let command = words("python train.py --epochs 5");
        let found = program(&command, &all("kubectl-gpu run -N2 -- python train.py --epochs 5")).unwrap();
        assert_eq!(found, Some(Program::Command(command)));
        let found = program(&words("no-such.sh -- x"), &all("kubectl-gpu run no-such.sh -- x"));
        assert!(found.unwrap_err().to_string().starts_with("no-such.sh: No such file"));
        assert_eq!(program(&[], &all("kubectl-gpu run --wrap=x")).unwrap(), None);
    }
}
