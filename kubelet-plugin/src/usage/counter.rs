//! Makes a driver counter that may go back monotonic.

/// Adds up the growth of a driver counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    total: u64,
    last: Option<u64>,
    /// A value below the last one, if read last.
    lower: Option<u64>,
}

impl Counter {
    /// Takes a value from the driver. A lower value than the last may be an error or a restart of the counter: a restart is certain
    /// if the next value is lower too.
    pub fn read(&mut self, value: u64) -> u64 {
        match (self.last, self.lower) {
            (None, _) => (self.total, self.last) = (value, Some(value)),
            (Some(last), _) if value >= last => {
                self.total = self.total.saturating_add(value - last);
                (self.last, self.lower) = (Some(value), None);
            }
            (Some(_), None) => self.lower = Some(value),
            (Some(_), Some(lower)) => {
                // The growth between the two readings. Growth before the first reading after a restart may be lost.
                self.total = self.total.saturating_add(value.saturating_sub(lower));
                (self.last, self.lower) = (Some(value), None);
            }
        }
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(values: &[u64]) -> Vec<u64> {
        let mut counter = Counter::default();
        values.iter().map(|value| counter.read(*value)).collect()
    }

    #[test]
    fn it_begins_with_the_drivers_and_grows_with_it() {
        assert_eq!(totals(&[100, 100, 250]), [100, 100, 250]);
    }

    #[test]
    fn a_value_that_is_wrong_once_is_passed_over() {
        assert_eq!(totals(&[100, 7, 110, 120]), [100, 100, 110, 120]);
    }

    #[test]
    fn what_begins_anew_goes_on_from_where_it_was() {
        assert_eq!(totals(&[100, 5, 15, 30]), [100, 100, 110, 125]);
        assert_eq!(totals(&[100, 5, 3, 4]), [100, 100, 100, 101]);
    }

    #[test]
    fn the_end_of_the_numbers_is_no_panic() {
        assert_eq!(
            totals(&[1, u64::MAX, 0, u64::MAX - 1, u64::MAX]),
            [1, u64::MAX, u64::MAX, u64::MAX, u64::MAX]
        );
    }
}
