//! A workload as a list: CSV with a line for each group of identical pods, or a trace with a line for each pod.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::jiff::{Span, SpanRelativeTo};
use tessera_api::gang::MAX_SIZE;

use super::line::{LONGEST, Line, name, namespace};
use super::openb::{self, LeftOut};
use super::{Ask, MOST_PODS, Pods, Workload};
use crate::fleet::Fleet;
use crate::fleet::groups::amount;
use crate::openb::TraceError;
use crate::openb::table::{Row, Table};

/// Required columns of a list.
const NEEDED: [&str; 2] = ["name", "gpu"];

/// All columns.
const COLUMNS: [&str; 14] = [
    "name",
    "namespace",
    "count",
    "gpu",
    "gpu_memory",
    "cpu",
    "memory",
    "at",
    "every",
    "duration",
    "priority",
    "gang",
    "busy",
    "movable",
];

/// A parsed list.
#[derive(Clone, Debug, Default)]
pub struct List {
    lines: Vec<Line>,
    /// Pods not simulated, with the reason.
    left_out: Vec<String>,
}

/// A problem with a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Not a table.
    #[error(transparent)]
    Table(#[from] TraceError),
    /// An invalid value.
    #[error("line {line}: {problem}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// All pods of a trace are left out.
    #[error("no pods are left: {0}")]
    NoneLeft(String),
}

/// Reads a list line by line.
#[derive(Debug, Default)]
pub struct ListReader {
    table: Table,
    lines: Vec<Line>,
    names: HashSet<String>,
    pods: usize,
    /// Whether the first line has a trace's columns.
    is_trace: Option<bool>,
    left_out: BTreeMap<LeftOut, usize>,
}

impl ListReader {
    /// Takes the next line.
    ///
    /// # Errors
    /// [`LineError`] for an invalid line.
    pub fn line(&mut self, text: &str) -> Result<(), LineError> {
        let is_trace = *self.is_trace.get_or_insert_with(|| openb::is_trace(text));
        let needed: &[&str] = if is_trace { &openb::NEEDED } else { &NEEDED };
        let Some(row) = self.table.row(text, needed)? else {
            if is_trace {
                return Ok(());
            }
            let unknown = text.trim().split(',').map(str::trim).find(|column| !COLUMNS.contains(column));
            return unknown.map_or(Ok(()), |column| {
                let problem = format!("there is no column {column:?}; there are {}", COLUMNS.join(", "));
                Err(LineError::Line { line: 1, problem })
            });
        };
        let number = row.line;
        let at = |problem| LineError::Line { line: number, problem };
        let line = if is_trace {
            match openb::read(&row).map_err(at)? {
                Ok(line) => line,
                Err(why) => {
                    *self.left_out.entry(why).or_default() += 1;
                    return Ok(());
                }
            }
        } else {
            read_line(&row).map_err(at)?
        };
        if !self.names.insert(line.name.clone()) {
            return Err(at(format!("the name {} is given twice", line.name)));
        }
        self.pods = self.pods.saturating_add(line.count);
        if self.pods > MOST_PODS {
            return Err(at(format!("this makes {} pods; up to {MOST_PODS} are supported", self.pods)));
        }
        self.lines.push(line);
        Ok(())
    }

    /// Ends the list. Times of a trace count from the arrival of its first pod.
    ///
    /// # Errors
    /// The list is empty, or no pod of it can be simulated.
    pub fn finish(mut self) -> Result<List, LineError> {
        let left_out: Vec<String> = self.left_out.into_iter().map(|(why, count)| why.words(count)).collect();
        if self.lines.is_empty() && !left_out.is_empty() {
            return Err(LineError::NoneLeft(left_out.join("; ")));
        }
        self.table.end(self.lines.is_empty())?;
        let first = self.lines.iter().map(|line| line.at).min().filter(|_| self.is_trace == Some(true));
        for line in &mut self.lines {
            line.at -= first.unwrap_or_default();
        }
        Ok(List { lines: self.lines, left_out })
    }
}

fn read_line(row: &Row<'_>) -> Result<Line, String> {
    let text = |column| row.text(column).map_err(|problem| problem.to_string());
    let given = |column| Some(row.text_or_nothing(column)).filter(|text| !text.is_empty());
    let name = name(row)?;
    let count = match given("count") {
        None => 1,
        Some(_) => row.positive("count").map_err(|problem| problem.to_string())?,
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let quantity = |column: &'static str, factor| {
        let amount = given(column).map(|text| amount(text, factor));
        amount.transpose().map_err(|reason| format!("{column} {reason}"))
    };
    let ask = Ask::read(text("gpu")?)?;
    let gpu_memory = quantity("gpu_memory", 1)?;
    if gpu_memory.is_some() && matches!(ask, Ask::Profile(_)) {
        return Err("gpu_memory is for whole cards and shares only; a profile has its own memory".to_owned());
    }
    let time = |column: &'static str| {
        let time = given(column).map(time).transpose();
        time.map_err(|reason| format!("{column} {reason}"))
    };
    let duration = time("duration")?;
    if duration == Some(Duration::ZERO) {
        return Err("duration is 0; leave it empty for pods that stay".to_owned());
    }
    let priority = given("priority")
        .map(|text| text.parse().map_err(|_| format!("priority is {text:?}, not a whole number")));
    let gang = match given("gang") {
        None => None,
        Some(_) => {
            let size = row.positive("gang").map_err(|problem| problem.to_string())?;
            let size = u32::try_from(size).ok().filter(|size| *size <= MAX_SIZE);
            let size = size.ok_or_else(|| format!("gang is more than {MAX_SIZE}"))?;
            if count % size as usize != 0 {
                return Err(format!("count is {count}, not a multiple of gang, {size}"));
            }
            Some(size).filter(|size| *size > 1)
        }
    };
    let busy = given("busy").map(|text| {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent
            .filter(|percent| *percent <= 100)
            .ok_or_else(|| format!("busy is {text:?}, not a percentage such as 15%"))
    });
    let is_movable = match given("movable") {
        None | Some("no") => false,
        Some("yes") if gang.is_none() => true,
        Some("yes") => return Err("movable is yes, and pods of a gang do not move".to_owned()),
        Some(other) => return Err(format!("movable is {other:?}, not yes or no")),
    };
    let (at, every) = (time("at")?.unwrap_or_default(), time("every")?.unwrap_or_default());
    let turns = count / gang.unwrap_or(1) as usize;
    if at.saturating_add(every.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX))) > LONGEST {
        return Err("the last pod would arrive after more than a hundred years".to_owned());
    }
    Ok(Line {
        name,
        namespace: namespace(row)?,
        count,
        ask,
        gpu_memory,
        cpu_milli: quantity("cpu", 1000)?.unwrap_or(0),
        memory_mib: quantity("memory", 1)?.map_or(0, |bytes| bytes.div_ceil(1 << 20)),
        at,
        every,
        duration,
        priority: priority.transpose()?.unwrap_or(0),
        gang,
        busy: busy.transpose()?,
        is_movable,
    })
}

/// `90s`, `1h30m`, `2d` or `0`.
///
/// # Errors
/// The text is not a time, negative, or more than a hundred years.
pub fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(format!("is {text}: negative"));
    }
    let wrong = || format!("is {text:?}, not a time such as 90s, 1h30m or 2d");
    let span: Span = text.parse().map_err(|_| wrong())?;
    let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    let time = Duration::try_from(time).map_err(|_| wrong())?;
    if time > LONGEST { Err(format!("is {text}: more than a hundred years")) } else { Ok(time) }
}

impl Workload {
    /// The pods of a list on this fleet, whose cards determine the memory of a share.
    #[must_use]
    pub fn of_list(list: &List, fleet: &Fleet) -> Self {
        let mut workload = Self { left_out: list.left_out.clone(), ..Self::default() };
        let mut gangs = 0;
        let mut shapes = HashMap::new();
        for line in &list.lines {
            let room = (line.cpu_milli, line.memory_mib);
            let kind = (&line.ask, line.gpu_memory, room, &line.namespace);
            let shape = *shapes.entry(kind).or_insert_with(|| {
                let mut shape = line.ask.shape(fleet, line.gpu_memory, room);
                if let Some(namespace) = &line.namespace {
                    shape.namespace.clone_from(namespace);
                }
                workload.shapes.push(shape);
                workload.shapes.len() - 1
            });
            let together = line.gang.unwrap_or(1) as usize;
            for number in 0..line.count {
                if number % together == 0 {
                    gangs += 1;
                }
                let turns = u32::try_from(number / together).unwrap_or(u32::MAX);
                workload.pods.push(Pods {
                    name: format!("{}-{number}", line.name),
                    shape,
                    at: line.at.saturating_add(line.every.saturating_mul(turns)),
                    duration: line.duration,
                    priority: line.priority,
                    gang: line.gang.map(|size| (gangs, size)),
                    busy: line.busy,
                    is_movable: line.is_movable,
                });
            }
        }
        // A stable sort: simultaneous arrivals keep the order of the list.
        workload.pods.sort_by_key(|pod| pod.at);
        workload
    }
}

#[cfg(test)]
impl Workload {
    /// The pods of a valid list.
    pub(in crate::fleet) fn of_text(text: &str, fleet: &Fleet) -> Self {
        let mut reader = ListReader::default();
        text.lines().for_each(|line| reader.line(line).unwrap());
        Self::of_list(&reader.finish().unwrap(), fleet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Result<List, LineError> {
        let mut reader = ListReader::default();
        text.lines().try_for_each(|line| reader.line(line))?;
        reader.finish()
    }

    #[test]
    fn pods_arrive_in_order() {
        let lines =
            read_all("name,gpu,count,at,every,duration,gang\na,15%,2,1m,30s,1h30m,\nb,2,4,10s,45s,,2\n");
        let fleet = Fleet::new(&["1xdgx-h100".parse().unwrap()]).unwrap();
        let workload = Workload::of_list(&lines.unwrap(), &fleet);
        let found: Vec<_> =
            workload.pods.iter().map(|pod| (pod.name.as_str(), pod.at.as_secs(), pod.gang)).collect();
        let (one, two) = (Some((3, 2)), Some((4, 2)));
        assert_eq!(
            found,
            [
                ("b-0", 10, one),
                ("b-1", 10, one),
                ("b-2", 55, two),
                ("b-3", 55, two),
                ("a-0", 60, None),
                ("a-1", 90, None)
            ]
        );
        assert_eq!(workload.pods[4].duration, Some(Duration::from_secs(5400)));
    }

    #[test]
    fn a_trace_of_openb() {
        let head =
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time";
        let pods = "a,1000,1024,2,1000,,100,400,150\nb,0,0,1,455,P100,90,,\nc,9,9,0,0,,90,100,95\nd,0,0,1,455,,95,95,95\n\
                    e,0,0,1,451,,95,100,\n";
        let list = read_all(&format!("{head}\n{pods}")).unwrap();
        let fleet = Fleet::new(&["1xdgx-h100".parse().unwrap()]).unwrap();
        let workload = Workload::of_list(&list, &fleet);
        let seconds = Duration::from_secs;
        let found: Vec<_> =
            workload.pods.iter().map(|pod| (&*pod.name, pod.at, pod.duration, pod.shape)).collect();
        // Pods with the same requests share a shape.
        let wanted = [
            ("b-0", seconds(0), None, 1),
            ("e-0", seconds(5), Some(seconds(5)), 1),
            ("a-0", seconds(10), Some(seconds(250)), 0),
        ];
        assert_eq!(found, wanted);
        let left_out = [
            "pods left out because they ask for no cards: 1",
            "pods left out because they ended at their start: 1",
        ];
        assert_eq!(workload.left_out, left_out);
        for (line, part) in [
            ("a,1,1,2,500,,,,", "gpu_milli is 500 with num_gpu 2"),
            ("a,1,1,1,0,,,,", "gpu_milli is 0"),
            ("a,1,1,1,1000,,100,50,", "deletion_time is 50 s before"),
            ("a,1,1,1,1000,,-1,,", "negative"),
            ("a,1,,1,1000,,,,", "no value for memory_mib"),
        ] {
            let error = read_all(&format!("{head}\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn a_trace_without_cards() {
        let error = read_all("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n").unwrap_err();
        assert_eq!(error.to_string(), "no pods are left: pods left out because they ask for no cards: 1");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let head = "name,gpu,count,at,every,duration,priority,gang,gpu_memory,cpu,memory\n";
        for (line, part) in [
            ("a,1,0,,,,,,,,", "count is 0"),
            ("a,1,-1,,,,,,,,", "negative"),
            ("a,1,one,,,,,,,,", "not a whole number"),
            ("a,1,1000000,,,,,,,,", "up to 100000"),
            (",1,1,,,,,,,,", "no value for name"),
            ("A B,1,1,,,,,,,,", "lower-case"),
            ("a,,1,,,,,,,,", "no value for gpu"),
            ("a,0,1,,,,,,,,", "gpu is 0"),
            ("a,33,1,,,,,,,,", "at most 32"),
            ("a,half,1,,,,,,,,", "must be a number of cards"),
            ("a,0%,1,,,,,,,,", "1% to 100%"),
            ("a,120%,1,,,,,,,,", "1% to 100%"),
            ("a,1,1,-5s,,,,,,,", "at is -5s: negative"),
            ("a,1,1,,soon,,,,,,", "every is \"soon\""),
            ("a,1,1,,,0,,,,,", "duration is 0"),
            ("a,1,1,,,5x,,,,,", "duration is \"5x\""),
            ("a,1,1,,,99999999999999999999s,,,,,", "not a time"),
            ("a,1,1,,,40000d,,,,,", "hundred years"),
            ("a,1,1,10,,,,,,,", "not a time"),
            ("a,1,9999,0,30d,,,,,,", "last pod would arrive"),
            ("a,1,1,,,,high,,,,", "priority"),
            ("a,1,3,,,,,2,,,", "not a multiple"),
            ("a,1,5000,,,,,5000,,,", "gang is more"),
            ("a,1g.10gb,1,,,,,,10Gi,,", "gpu_memory is for"),
            ("a,1,1,,,,,,-1,,", "above 0"),
            ("a,1,1,,,,,,,none,", "cpu is \"none\""),
            ("a,1,1", "3 values for 11 columns"),
            ("", "empty"),
        ] {
            let error = read_all(&format!("{head}{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(part), "{line}: {error}");
        }
        let namespace = read_all("name,gpu,namespace\na,1,A_B\n").unwrap_err().to_string();
        assert!(namespace.contains("namespace is \"A_B\""), "{namespace}");
        let movable =
            |line| read_all(&format!("name,gpu,count,gang,movable\n{line}\n")).unwrap_err().to_string();
        assert!(movable("a,1,,,maybe").contains("movable is \"maybe\""));
        assert!(movable("a,1,2,2,yes").contains("of a gang do not move"));
        assert_eq!(read_all("").unwrap_err().to_string(), "line 1: the file has no rows");
        assert!(read_all("name,count\n").unwrap_err().to_string().contains("no column gpu"));
        assert!(read_all("name,gpu,durtion\n").unwrap_err().to_string().contains("no column \"durtion\""));
        let twice = read_all("name,gpu\na,1\na,2\n").unwrap_err().to_string();
        assert_eq!(twice, "line 3: the name a is given twice");
    }
}
