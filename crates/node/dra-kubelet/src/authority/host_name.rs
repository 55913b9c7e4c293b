/// Whether this byte is allowed in a host name of a URI (RFC 3986 `unreserved` and `sub-delims`).
pub(super) fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}
