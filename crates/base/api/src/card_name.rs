use std::fmt;

use crate::pci_bus_id::PciBusId;

/// A card's own name, the prefix of its partitions' and shares' names: `gpu-3b-00`.
pub(crate) struct CardName(pub PciBusId);

impl fmt::Display for CardName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(card) = self;
        formatter.write_str("gpu-")?;
        if card.domain() != 0 {
            write!(formatter, "{:04x}-", card.domain())?;
        }
        write!(formatter, "{:02x}-{:02x}", card.bus(), card.device())?;
        if card.function() != 0 {
            write!(formatter, "-{:x}", card.function())?;
        }
        Ok(())
    }
}
