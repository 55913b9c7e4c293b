/// Processes allowed to use a card (`nvmlComputeMode_t`). MPS wants [`ComputeMode::ExclusiveProcess`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One thread of one process; drivers no longer offer it.
    ExclusiveThread,
    /// No process.
    Prohibited,
    /// One process, or the clients of one MPS server.
    ExclusiveProcess,
}

impl ComputeMode {
    pub(crate) fn number(self) -> u32 {
        match self {
            ComputeMode::Default => 0,
            ComputeMode::ExclusiveThread => 1,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => ComputeMode::Default,
            1 => ComputeMode::ExclusiveThread,
            2 => ComputeMode::Prohibited,
            3 => ComputeMode::ExclusiveProcess,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for number in 0..4 {
            assert_eq!(ComputeMode::from_number(number).map(ComputeMode::number), Some(number));
        }
        assert_eq!(ComputeMode::from_number(4), None);
    }
}
