//! A counter of the driver's that may go back, as one that never does.

/// Adds up what a counter of the driver grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    total: u64,
    last: Option<u64>,
    /// A value below the last one, if that is what was read last.
    lower: Option<u64>,
}

impl Counter {
    /// Takes a value of the driver's. One that is lower than the last may be an error, or the driver began anew: that is known when
    /// the next one is lower too.
    pub fn read(&mut self, value: u64) -> u64 {
        match (self.last, self.lower) {
            (None, _) => (self.total, self.last) = (value, Some(value)),
            (Some(last), _) if value >= last => {
                self.total = self.total.saturating_add(value - last);
                (self.last, self.lower) = (Some(value), None);
            }
            (Some(_), None) => self.lower = Some(value),
            (Some(_), Some(lower)) => {
                // What it counted between the two; what it had counted up to the first was perhaps never told.
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
