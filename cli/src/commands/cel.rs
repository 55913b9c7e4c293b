//! `kubectl gpu cel`: matches of a selector, and why.

use std::fmt::Write;

use k8s_openapi::api::resource::v1::ResourceSlice;
use serde::Serialize;
use tessera_cel::{COST_LIMIT, CompileError, Environment, Selector};

use crate::api_server::Wanted;
use crate::arguments::CelArguments;
use crate::devices::{self, DeviceId, Place};
use crate::hints;
use crate::lines;
use crate::output::{self, CommandError, Paint, Verdict, counted, printable};
use crate::source::Source;

/// Limit of devices shown without `-v`.
const SHOWN: usize = 20;

/// The answer for one device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(flatten)]
    id: DeviceId,
    node: String,
    #[serde(rename = "match")]
    matches: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The answers for all devices.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    expression: String,
    /// Upper bound of its cost, by the API server's estimate.
    max_cost: u64,
    /// The API server's error on writing an object with this expression, if refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    devices: Vec<Answer>,
    hints: Vec<String>,
}

/// A part of the expression.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    expression: String,
    value: String,
}

/// The value of every part for one device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceReport {
    expression: String,
    max_cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(flatten)]
    answer: Answer,
    cost: u64,
    parts: Vec<Part>,
    hints: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The expression is wrong or fails on a device, or the devices could not be read.
pub fn run(arguments: &CelArguments) -> Result<Verdict, CommandError> {
    if arguments.lines {
        let mut server = lines::cel::Server::new(arguments.release.kubernetes.unwrap_or_default());
        lines::serve(std::io::stdin().lock(), std::io::stdout().lock(), &mut server)?;
        return Ok(Verdict::Yes);
    }
    let expression = arguments.expression.as_deref().unwrap_or_default();
    let source = Source::load(&arguments.source, Wanted::Devices)?;
    let environment = Environment::from(source.release(&arguments.release));
    // As kube-scheduler compiles a stored expression.
    let selector = Selector::compile_with(expression, environment)
        .map_err(|error| CommandError::Asked(format!("the expression is not a selector: {error}")))?;
    let slices: Vec<ResourceSlice> = source.objects.slices.into_values().collect();
    let places = devices::devices(slices.iter());
    if places.is_empty() {
        return Err(CommandError::Asked("there are no devices: no ResourceSlice lists any".to_owned()));
    }
    let hints = hints::unknown_names(&selector, &places);
    let refused = refused(expression, environment);
    let verdict = match &arguments.device {
        Some(name) => one_device(arguments, &selector, find(&places, name)?, hints, refused.clone()),
        None => all_devices(arguments, &selector, &places, hints, refused.clone()),
    }?;
    match refused {
        Some(refused) => Err(CommandError::Asked(refused)),
        None => Ok(verdict),
    }
}

/// The API server's error on writing an object with the expression, if refused though kube-scheduler would evaluate a stored one.
fn refused(expression: &str, environment: Environment) -> Option<String> {
    let error = Selector::compile_new(expression, environment).err()?;
    let why = match error {
        CompileError::TooComplex { estimate: u64::MAX } => {
            "; the estimate of its cost has no upper bound, because it assumes the longest texts and lists of each \
             type"
                .to_owned()
        }
        CompileError::TooComplex { estimate } => {
            format!(
                "; its estimated cost is {estimate}, for a device as large as the API allows, and the limit is \
                 {COST_LIMIT}"
            )
        }
        CompileError::TooLong => format!("; it has {} bytes", expression.len()),
        _ => String::new(),
    };
    Some(format!("the API server would refuse a new object with this expression: {error}{why}"))
}

fn all_devices(
    arguments: &CelArguments,
    selector: &Selector,
    places: &[Place<'_>],
    hints: Vec<String>,
    refused: Option<String>,
) -> Result<Verdict, CommandError> {
    let mut answers: Vec<Answer> = places.iter().map(|place| answer(selector, place).0).collect();
    let count = |wanted: Option<bool>| answers.iter().filter(|answer| answer.matches == wanted).count();
    let (matching, failing) = (count(Some(true)), count(None));
    if !arguments.verbose {
        answers.retain(|answer| answer.matches != Some(false));
    }
    if let Some(format) = arguments.output {
        output::structured(
            format,
            &Report {
                expression: selector.source().to_owned(),
                max_cost: selector.max_cost(),
                refused,
                devices: answers,
                hints,
            },
        )?;
    } else {
        let paint = Paint::standard_output();
        let mut text = String::new();
        let shown = if arguments.verbose { usize::MAX } else { SHOWN };
        if !answers.is_empty() {
            let detailed = arguments.verbose || failing > 0;
            let header: &[&str] = &["NODE", "DRIVER", "POOL", "DEVICE", "MATCH"];
            text += &output::table(
                &header[..if detailed { 5 } else { 4 }],
                answers.iter().take(shown).map(|answer| {
                    let id = &answer.id;
                    let mut row =
                        vec![answer.node.clone(), id.driver.clone(), id.pool.clone(), id.device.clone()];
                    if detailed {
                        row.push(match (&answer.error, answer.matches) {
                            (Some(error), _) => format!("error: {error}"),
                            (_, Some(true)) => "yes".to_owned(),
                            _ => "no".to_owned(),
                        });
                    }
                    row
                }),
            );
            if answers.len() > shown {
                text += &format!("… and {} more (-v shows all)\n", answers.len() - shown);
            }
            text.push('\n');
        }
        let summary = format!("{matching} of {} match", counted(places.len(), "device"));
        text += &if matching > 0 { paint.good(&summary) } else { paint.bad(&summary) };
        text.push('\n');
        add_hints(&mut text, &hints, paint);
        output::print(&text)?;
    }
    if failing > 0 {
        return Err(CommandError::Asked(format!(
            "the expression fails on {}; kube-scheduler cannot schedule pods that use it",
            counted(failing, "device")
        )));
    }
    Ok(if matching > 0 { Verdict::Yes } else { Verdict::No })
}

fn one_device(
    arguments: &CelArguments,
    selector: &Selector,
    place: &Place<'_>,
    hints: Vec<String>,
    refused: Option<String>,
) -> Result<Verdict, CommandError> {
    let (answer, cost, device) = answer(selector, place);
    let parts: Vec<Part> = device
        .map(|device| selector.explain(&device))
        .unwrap_or_default()
        .into_iter()
        .map(|part| Part {
            expression: selector.source().get(part.start..part.end).unwrap_or_default().to_owned(),
            value: part.value,
        })
        .collect();
    let verdict = match (&answer.error, answer.matches) {
        (Some(error), _) => {
            Err(CommandError::Asked(format!("the expression fails on {}: {error}", answer.id)))
        }
        (_, Some(true)) => Ok(Verdict::Yes),
        _ => Ok(Verdict::No),
    };
    if let Some(format) = arguments.output {
        let expression = selector.source().to_owned();
        let max_cost = selector.max_cost();
        let report = DeviceReport { expression, max_cost, refused, answer, cost, parts, hints };
        output::structured(format, &report)?;
    } else {
        let paint = Paint::standard_output();
        let said = match answer.matches {
            Some(true) => paint.good("matches"),
            Some(false) => paint.bad("does not match"),
            None => paint.bad("fails"),
        };
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} on {} {said} (cost {cost}, at most {})\n",
            answer.id,
            answer.node,
            at_most(selector)
        );
        let rows = parts.iter().map(|part| vec![part.value.clone(), one_line(&part.expression)]);
        text += &output::table(&["VALUE", "PART"], rows);
        add_hints(&mut text, &hints, paint);
        output::print(&text)?;
    }
    verdict
}

fn answer(selector: &Selector, place: &Place<'_>) -> (Answer, u64, Option<tessera_cel::Device>) {
    let published = place.device;
    let evaluated = devices::for_evaluation(
        &place.id.driver,
        published.attributes.as_ref(),
        published.capacity.as_ref(),
        published.allow_multiple_allocations == Some(true),
        selector.environment().reads_lists(),
    );
    let (result, cost, device) = match evaluated {
        Ok(device) => {
            let evaluation = selector.evaluate(&device);
            (evaluation.result.map_err(|error| error.to_string()), evaluation.cost, Some(device))
        }
        Err(error) => (Err(format!("a capacity is not a quantity: {error}")), 0, None),
    };
    let (matches, error) = match result {
        Ok(matches) => (Some(matches), None),
        Err(error) => (None, Some(error)),
    };
    (Answer { id: place.id.clone(), node: place.node().to_owned(), matches, error }, cost, device)
}

/// The device with this name: `device`, `node/device`, `pool/device` or `driver/pool/device`; pool names may have
/// slashes.
fn find<'p, 's>(places: &'p [Place<'s>], name: &str) -> Result<&'p Place<'s>, CommandError> {
    let found: Vec<&Place<'_>> = places
        .iter()
        .filter(|place| {
            let id = &place.id;
            name == id.device
                || name == format!("{}/{}", id.pool, id.device)
                || name == format!("{}/{}", place.node(), id.device)
                || name == id.to_string()
        })
        .collect();
    match found.as_slice() {
        [only] => Ok(only),
        [] => {
            let names = places.iter().map(|place| place.id.device.clone()).collect();
            Err(CommandError::Asked(hints::unknown("name", name, &names).replace("has name", "is named")))
        }
        many => {
            let examples: Vec<String> = many.iter().take(5).map(|place| place.id.to_string()).collect();
            Err(CommandError::Asked(format!(
                "{} have the name {name}; give the full name of one: {}{}",
                counted(many.len(), "device"),
                examples.join(", "),
                if many.len() > 5 { ", …" } else { "" }
            )))
        }
    }
}

/// The upper bound of its cost.
fn at_most(selector: &Selector) -> String {
    match selector.max_cost() {
        u64::MAX => "without limit".to_owned(),
        cost => cost.to_string(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn add_hints(text: &mut String, hints: &[String], paint: Paint) {
    for hint in hints {
        text.push_str(&paint.hint(&printable(hint)));
        text.push('\n');
    }
}
