//! Limits as users write them.

/// Bytes of `10G`, `900M` or `512MB`: the forms in the documentation of `set_default_device_pinned_mem_limit` and of
/// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A limit as printed by the daemon: in G if whole, else in M.
pub fn text(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{}G", bytes >> 30) } else { format!("{}M", bytes >> 20) }
}

/// The limit for one device in `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`: `0=1G,1=512MB`, by number or UUID. Invalid parts
/// are ignored.
pub fn for_device(variable: &str, number: usize, uuid: &str) -> Option<u64> {
    let number = number.to_string();
    variable
        .trim_matches('\'')
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .filter(|(device, _)| *device == number || *device == uuid)
        .find_map(|(_, limit)| bytes(limit))
}

/// A percentage of threads: above 0, at most 100.
pub fn percentage(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percentage| *percentage > 0.0 && *percentage <= 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_documented() {
        assert_eq!(bytes("10G"), Some(10 << 30));
        assert_eq!(bytes("900M"), Some(900 << 20));
        assert_eq!(bytes("512MB"), Some(512 << 20));
        for wrong in ["10", "G", "-1G", "1T", "1.5G", "99999999999999999999G", "18446744073709551615G"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!((text(2 << 30).as_str(), text(20_350 << 20).as_str()), ("2G", "20350M"));
    }

    #[test]
    fn a_variable_names_devices_by_number_or_uuid() {
        assert_eq!(for_device("0=1G,1=512MB", 1, "GPU-x"), Some(512 << 20));
        assert_eq!(for_device("GPU-x=2G", 0, "GPU-x"), Some(2 << 30));
        assert_eq!(for_device("1=2G,rubbish", 0, "GPU-x"), None);
    }
}
