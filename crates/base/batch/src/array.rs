use std::collections::BTreeSet;
use std::str::FromStr;

use crate::time_limit::whole;

/// Most tasks of an array: their numbers are one environment variable.
const MOST_TASKS: usize = 10_000;

/// The largest number of a task: the largest `MaxArraySize` of Slurm, less one.
const LARGEST: u64 = 4_000_000;

/// The value of `--array`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Numbers of the tasks, ascending.
    pub tasks: Vec<u32>,
    /// How many run at once; `None` for all.
    pub at_once: Option<u32>,
}

impl FromStr for Array {
    type Err = String;

    /// Numbers, ranges `first-last`, ranges with a step `first-last:step`, separated by commas; then `%` and how many run at
    /// once.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected numbers and ranges, as in 0-15, 1,3,5-7, 0-30:10 or 0-99%8";
        let (list, at_once) = match text.split_once('%') {
            Some((list, limit)) => {
                let limit = whole(limit).and_then(|limit| u32::try_from(limit).ok()).ok_or(FORM)?;
                (list, Some(limit).filter(|limit| *limit > 0))
            }
            None => (text, None),
        };
        let mut tasks = BTreeSet::new();
        for part in list.split(',') {
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let step = whole(step).and_then(|step| usize::try_from(step).ok()).filter(|step| *step > 0);
            let (first, last) = (number(first).ok_or(FORM)?, number(last).ok_or(FORM)?);
            if last < first {
                return Err(format!("{part} ends before it begins"));
            }
            tasks.extend((first..=last).step_by(step.ok_or(FORM)?).take(MOST_TASKS + 1));
            if tasks.len() > MOST_TASKS {
                return Err(format!("more than {MOST_TASKS} tasks"));
            }
        }
        Ok(Array { tasks: tasks.into_iter().collect(), at_once })
    }
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    whole(text).filter(|number| *number <= LARGEST).and_then(|number| u32::try_from(number).ok())
}
