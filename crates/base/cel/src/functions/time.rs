//! Durations and timestamps.

pub(crate) mod zone;

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::Machine;
use crate::evaluate::program::Implementation;
use crate::evaluate::value::Value;
use crate::values::time::{Civil, NANOSECONDS};

fn field<'v>(
    machine: &mut Machine<'v>,
    arguments: &[Value<'v>],
    field: impl FnOnce(&Civil, u32) -> i64,
) -> Answer<'v> {
    let (time, offset) = match arguments {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(zone)] => match zone::offset(machine, zone, time.seconds())? {
            Ok(offset) => (time, offset),
            Err(message) => return fail(message),
        },
        _ => return mismatch(),
    };
    Ok(Value::Int(field(&time.civil(offset), time.nanoseconds)))
}

fn of_duration<'v>(arguments: &[Value<'v>], unit: i64) -> Answer<'v> {
    match arguments {
        [Value::Duration(nanoseconds)] => Ok(Value::Int(nanoseconds / unit)),
        _ => mismatch(),
    }
}

/// The implementation of an overload of timestamps and durations.
pub(crate) fn overload(id: &str) -> Option<Implementation> {
    fn year<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.year)
    }
    fn month<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.month - 1)
    }
    fn day_of_year<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.day_of_year)
    }
    fn day_of_month<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.day - 1)
    }
    fn date<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.day)
    }
    fn day_of_week<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.weekday)
    }
    fn hours<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.second_of_day / 3600)
    }
    fn minutes<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.second_of_day / 60 % 60)
    }
    fn seconds<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |civil, _| civil.second_of_day % 60)
    }
    fn milliseconds<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        field(machine, arguments, |_, nanoseconds| i64::from(nanoseconds) / 1_000_000)
    }
    fn duration_hours<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        of_duration(arguments, 3_600_000_000_000)
    }
    fn duration_minutes<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        of_duration(arguments, 60_000_000_000)
    }
    fn duration_seconds<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        of_duration(arguments, NANOSECONDS)
    }
    fn duration_milliseconds<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
        of_duration(arguments, 1_000_000)
    }
    Some(match id {
        "timestamp_to_year" | "timestamp_to_year_with_tz" => year,
        "timestamp_to_month" | "timestamp_to_month_with_tz" => month,
        "timestamp_to_day_of_year" | "timestamp_to_day_of_year_with_tz" => day_of_year,
        "timestamp_to_day_of_month" | "timestamp_to_day_of_month_with_tz" => day_of_month,
        "timestamp_to_day_of_month_1_based" | "timestamp_to_day_of_month_1_based_with_tz" => date,
        "timestamp_to_day_of_week" | "timestamp_to_day_of_week_with_tz" => day_of_week,
        "timestamp_to_hours" | "timestamp_to_hours_with_tz" => hours,
        "timestamp_to_minutes" | "timestamp_to_minutes_with_tz" => minutes,
        "timestamp_to_seconds" | "timestamp_to_seconds_tz" => seconds,
        "timestamp_to_milliseconds" | "timestamp_to_milliseconds_with_tz" => milliseconds,
        "duration_to_hours" => duration_hours,
        "duration_to_minutes" => duration_minutes,
        "duration_to_seconds" => duration_seconds,
        "duration_to_milliseconds" => duration_milliseconds,
        _ => return None,
    })
}
