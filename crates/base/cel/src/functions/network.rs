//! IP addresses and CIDR blocks, as Go's `net/netip` reads and classifies them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::Machine;
use crate::evaluate::value::Value;

/// An address, or why the text is not one. Zones and IPv4-mapped IPv6 addresses are refused.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        )
    })?;
    refuse_mapped(address, text)
}

fn refuse_mapped(address: IpAddr, text: &str) -> Result<IpAddr, String> {
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        address => Ok(address),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let prefix_error = |reason: &str| {
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text:?}): {reason}"
        )
    };
    let (address, length) = text.rsplit_once('/').ok_or_else(|| prefix_error("no '/'"))?;
    let address: IpAddr =
        address.parse().map_err(|_| prefix_error(&format!("ParseAddr({address:?}): unable to parse IP")))?;
    let has_only_digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    if !has_only_digits || (length.len() > 1 && length.starts_with('0')) {
        return Err(prefix_error(&format!("bad bits after slash: {length:?}")));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length: u8 = length
        .parse()
        .ok()
        .filter(|length| *length <= most)
        .ok_or_else(|| prefix_error("prefix length out of range"))?;
    Ok((refuse_mapped(address, text)?, length))
}

pub(crate) fn ip<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    parse_ip(text).map_or_else(fail, |address| Ok(Value::Ip(address)))
}

pub(crate) fn is_ip<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    Ok(Value::Bool(parse_ip(text).is_ok()))
}

pub(crate) fn is_canonical<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    parse_ip(text).map_or_else(fail, |address| Ok(Value::Bool(address.to_string() == **text)))
}

fn of_ip<'v>(
    arguments: &[Value<'v>],
    four: impl FnOnce(Ipv4Addr) -> bool,
    six: impl FnOnce(Ipv6Addr) -> bool,
) -> Answer<'v> {
    match &arguments[0] {
        Value::Ip(IpAddr::V4(address)) => Ok(Value::Bool(four(*address))),
        Value::Ip(IpAddr::V6(address)) => Ok(Value::Bool(six(*address))),
        _ => mismatch(),
    }
}

pub(crate) fn family<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Ip(address) => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        _ => mismatch(),
    }
}

pub(crate) fn is_unspecified<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    of_ip(arguments, |four| four.is_unspecified(), |six| six.is_unspecified())
}

pub(crate) fn is_loopback<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    of_ip(arguments, |four| four.is_loopback(), |six| six.is_loopback())
}

pub(crate) fn is_link_local_multicast<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    of_ip(arguments, |four| four.octets()[..3] == [224, 0, 0], |six| six.segments()[0] & 0xff0f == 0xff02)
}

pub(crate) fn is_link_local_unicast<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    of_ip(arguments, |four| four.is_link_local(), |six| six.segments()[0] & 0xffc0 == 0xfe80)
}

pub(crate) fn is_global_unicast<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    of_ip(
        arguments,
        |four| {
            !(four.is_unspecified()
                || four.is_broadcast()
                || four.is_loopback()
                || four.is_multicast()
                || four.is_link_local())
        },
        |six| {
            let link_local = six.segments()[0] & 0xffc0 == 0xfe80;
            !(six.is_unspecified() || six.is_loopback() || six.is_multicast() || link_local)
        },
    )
}

pub(crate) fn cidr<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    match parse_cidr(text) {
        Ok((address, length)) => Ok(Value::Cidr { address, length }),
        Err(message) => fail(format!("network address parse error during conversion from string: {message}")),
    }
}

pub(crate) fn is_cidr<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    Ok(Value::Bool(parse_cidr(text).is_ok()))
}

pub(crate) fn cidr_ip<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Cidr { address, .. } => Ok(Value::Ip(*address)),
        _ => mismatch(),
    }
}

pub(crate) fn prefix_length<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Cidr { length, .. } => Ok(Value::Int(i64::from(*length))),
        _ => mismatch(),
    }
}

/// The address's bits left-aligned in 128, and their number.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (u128::from(four.to_bits()) << 96, 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    }
}

fn masked_bits(address: IpAddr, length: u8) -> u128 {
    let mask = if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length)) };
    bits(address).0 & mask
}

pub(crate) fn masked<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::Cidr { address, length } = arguments[0] else { return mismatch() };
    let kept = masked_bits(address, length);
    let address = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((kept >> 96) as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(kept)),
    };
    Ok(Value::Cidr { address, length })
}

pub(crate) fn contains_ip<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::Cidr { address, length }, other] = arguments else { return mismatch() };
    let other = match other {
        Value::Ip(other) => *other,
        // Upstream passes the parser's error on as if it were the address.
        Value::String(text) => match parse_ip(text) {
            Ok(other) => other,
            Err(_) => return mismatch(),
        },
        _ => return mismatch(),
    };
    let same_family = address.is_ipv4() == other.is_ipv4();
    Ok(Value::Bool(same_family && masked_bits(*address, *length) == masked_bits(other, *length)))
}

pub(crate) fn contains_cidr<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::Cidr { address, length }, other] = arguments else { return mismatch() };
    let (other, other_length) = match other {
        Value::Cidr { address, length } => (*address, *length),
        Value::String(text) => match parse_cidr(text) {
            Ok(parsed) => parsed,
            Err(message) => {
                return fail(format!("network address parse error during conversion from string: {message}"));
            }
        },
        _ => return mismatch(),
    };
    let same_family = address.is_ipv4() == other.is_ipv4();
    let shorter = (*length).min(other_length);
    let overlaps = same_family && masked_bits(*address, shorter) == masked_bits(other, shorter);
    Ok(Value::Bool(overlaps && *length <= other_length))
}
