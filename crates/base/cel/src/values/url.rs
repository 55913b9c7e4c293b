//! URLs, as Go's `net/url` reads and writes them.

use std::fmt;

/// A parsed URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Url {
    pub scheme: String,
    opaque: String,
    user: Option<String>,
    pub host: String,
    path: Vec<u8>,
    raw_path: String,
    omit_host: bool,
    has_empty_query: bool,
    pub query: String,
    fragment: Option<String>,
}

/// The part of a URL around an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    Query,
    User,
    Fragment,
}

fn should_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    match part {
        Part::Host | Part::Zone => !b"!$&'()*+,;=:[]<>\"".contains(&byte),
        Part::Path => !b"$&+,/:;=@".contains(&byte),
        Part::User => !b"$&+,;=".contains(&byte),
        Part::Query => true,
        Part::Fragment => !b"$&+,/:;=?@!()*".contains(&byte),
    }
}

fn hexadecimal(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut value = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = (
                    bytes.get(at + 1).copied().and_then(hexadecimal),
                    bytes.get(at + 2).copied().and_then(hexadecimal),
                );
                let shown = || String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]).into_owned();
                let (Some(high), Some(low)) = digits else {
                    return Err(format!("invalid URL escape {:?}", shown()));
                };
                let byte = high << 4 | low;
                let refused = match part {
                    Part::Host => high < 8 && byte != b'%',
                    Part::Zone => byte != b'%' && byte != b' ' && should_escape(byte, Part::Host),
                    _ => false,
                };
                if refused {
                    return Err(format!("invalid URL escape {:?}", shown()));
                }
                value.push(byte);
                at += 3;
            }
            b'+' if part == Part::Query => {
                value.push(b' ');
                at += 1;
            }
            byte => {
                if matches!(part, Part::Host | Part::Zone) && byte < 0x80 && should_escape(byte, part) {
                    return Err(format!("invalid character {:?} in host name", char::from(byte).to_string()));
                }
                value.push(byte);
                at += 1;
            }
        }
    }
    Ok(value)
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if should_escape(*byte, part) {
            text.push_str(&format!("%{byte:02X}"));
        } else {
            text.push(char::from(*byte));
        }
    }
    text
}

/// The scheme and the text after its colon.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at > 0 => return Ok((&text[..at], &text[at + 1..])),
            b':' => return Err("missing protocol scheme".to_owned()),
            _ => break,
        }
    }
    Ok(("", text))
}

fn is_optional_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match host.rfind('[') {
        Some(0) => {
            let close = host.rfind(']').ok_or("missing ']' in host")?;
            let port = &host[close + 1..];
            if !is_optional_port(port) {
                return Err(format!("invalid port {port:?} after host"));
            }
            let inside = &host[1..close];
            let name = match inside.find("%25") {
                Some(zone) => {
                    text(unescape(&inside[..zone], Part::Host)?)
                        + &text(unescape(&inside[zone..], Part::Zone)?)
                }
                None => text(unescape(inside, Part::Host)?),
            };
            let address = name.split_once('%').map_or(name.as_str(), |(address, _)| address);
            address.parse::<std::net::Ipv6Addr>().map_err(|_| "invalid host".to_owned())?;
            return Ok(format!("[{name}]{port}"));
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let Some(mut colon) = host.find(':') {
        if scheme != "http" && scheme != "https" {
            colon = host.rfind(':').unwrap_or(colon);
        }
        let port = &host[colon..];
        if !is_optional_port(port) {
            return Err(format!("invalid port {port:?} after host"));
        }
    }
    Ok(text(unescape(host, Part::Host)?))
}

fn is_user_information(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
}

/// Parses a URL. With `request` it must be an absolute URL or path, as in an HTTP request.
fn parse(text: &str, request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, mut rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        url.has_empty_query = true;
        rest = &rest[..rest.len() - 1];
    } else if let Some((before, query)) = rest.split_once('?') {
        url.query = query.to_owned();
        rest = before;
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if (!url.scheme.is_empty() || !request && !rest.starts_with("///")) && rest.starts_with("//") {
        let after = &rest[2..];
        let (authority, path) = after.find('/').map_or((after, ""), |slash| after.split_at(slash));
        rest = path;
        match authority.rfind('@') {
            None => url.host = parse_host(&url.scheme, authority)?,
            Some(at) => {
                url.host = parse_host(&url.scheme, &authority[at + 1..])?;
                let user = &authority[..at];
                if !is_user_information(user) {
                    return Err("net/url: invalid userinfo".to_owned());
                }
                let (name, password) =
                    user.split_once(':').map_or((user, None), |(name, word)| (name, Some(word)));
                let mut shown = escape(&unescape(name, Part::User)?, Part::User);
                if let Some(password) = password {
                    shown = format!("{shown}:{}", escape(&unescape(password, Part::User)?, Part::User));
                }
                url.user = Some(shown);
            }
        }
    } else if !url.scheme.is_empty() && rest.starts_with('/') {
        url.omit_host = true;
    }
    url.path = unescape(rest, Part::Path)?;
    if escape(&url.path, Part::Path) != rest {
        url.raw_path = rest.to_owned();
    }
    Ok(url)
}

/// Why a text is not a URL for a request, with the text of Go's `ParseRequestURI`.
pub(crate) fn request_error(text: &str) -> Option<String> {
    parse(text, true).err().map(|reason| format!("parse {text:?}: {reason}"))
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(message) = request_error(text) {
            return Err(message);
        }
        let (before, fragment) =
            text.split_once('#').map_or((text, None), |(before, after)| (before, Some(after)));
        let mut url = parse(before, false).map_err(|reason| format!("parse {text:?}: {reason}"))?;
        if let Some(fragment) = fragment.filter(|fragment| !fragment.is_empty()) {
            unescape(fragment, Part::Fragment).map_err(|reason| format!("parse {text:?}: {reason}"))?;
            url.fragment = Some(fragment.to_owned());
        }
        Ok(url)
    }

    pub fn escaped_path(&self) -> String {
        let is_valid = !self.raw_path.is_empty()
            && self
                .raw_path
                .bytes()
                .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !should_escape(byte, Part::Path));
        if is_valid {
            return self.raw_path.clone();
        }
        if self.path == b"*" {
            return "*".to_owned();
        }
        escape(&self.path, Part::Path)
    }

    /// Host name and port.
    pub fn split_host(&self) -> (&str, &str) {
        let (mut name, mut port) = (self.host.as_str(), "");
        if let Some(colon) = name.rfind(':')
            && is_optional_port(&name[colon..])
        {
            (name, port) = (&self.host[..colon], &self.host[colon + 1..]);
        }
        if name.starts_with('[') && name.ends_with(']') {
            name = &name[1..name.len() - 1];
        }
        (name, port)
    }

    /// The query's names and values, in order of first appearance.
    pub fn query_values(&self) -> Vec<(String, Vec<String>)> {
        let mut values: Vec<(String, Vec<String>)> = Vec::new();
        for part in self.query.split('&') {
            if part.is_empty() || part.contains(';') {
                continue;
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Ok(name), Ok(value)) = (unescape(name, Part::Query), unescape(value, Part::Query)) else {
                continue;
            };
            let (name, value) =
                (String::from_utf8_lossy(&name).into_owned(), String::from_utf8_lossy(&value).into_owned());
            match values.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.push(value),
                None => values.push((name, vec![value])),
            }
        }
        values
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(formatter, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            let has_authority = !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some();
            if has_authority && !(self.omit_host && self.host.is_empty() && self.user.is_none()) {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    formatter.write_str("//")?;
                }
                if let Some(user) = &self.user {
                    write!(formatter, "{user}@")?;
                }
                formatter.write_str(&escape(self.host.as_bytes(), Part::Host))?;
            }
            formatter.write_str(&self.escaped_path())?;
        } else {
            formatter.write_str(&self.opaque)?;
        }
        if self.has_empty_query || !self.query.is_empty() {
            write!(formatter, "?{}", self.query)?;
        }
        match &self.fragment {
            Some(fragment) => write!(formatter, "#{fragment}"),
            None => Ok(()),
        }
    }
}
