use std::cmp::{Ordering, Reverse};

/// Order of pools selecting the same card: the higher priority first, then the older, then by
/// name. `created` is the object's `creationTimestamp` in any form sorting by time.
pub fn precedence<T: Ord>(one: (i32, &T, &str), other: (i32, &T, &str)) -> Ordering {
    let key = |(priority, created, name)| (Reverse(priority), created, name);
    let (one, other): ((_, &T, &str), (_, &T, &str)) = (key(one), key(other));
    one.cmp(&other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_then_age_then_name() {
        let mut pools = [(0, &2, "c"), (0, &1, "b"), (5, &9, "a"), (0, &1, "a")];
        pools.sort_by(|one, other| precedence(*one, *other));
        assert_eq!(pools, [(5, &9, "a"), (0, &1, "a"), (0, &1, "b"), (0, &2, "c")]);
    }
}
