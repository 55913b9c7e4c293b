//! The part of the device a value comes from: `device`, then field names, `@keys`, `@values`, `@items`,
//! `@indices`.
//!
//! Upstream keeps a path in a Go slice and appends to it. Two paths made from the same third one may then
//! share their last element: the later overwrites the earlier. In `d.all(k, d[k] == k)` the key's path ends in `@values`
//! once `d[k]` was visited. Estimates change by this, so it is done here as in Go.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::limits;

/// A path; empty where a value is not a part of the device.
#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    /// As long as the capacity of Go's slice.
    storage: Rc<RefCell<Vec<Option<Arc<str>>>>>,
    length: usize,
}

impl Path {
    pub(super) fn of(name: &Arc<str>) -> Path {
        Path { storage: Rc::new(RefCell::new(vec![Some(name.clone())])), length: 1 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn starts_with(&self, name: &str) -> bool {
        self.length > 0 && self.storage.borrow()[0].as_deref() == Some(name)
    }

    /// Go's `append`: in place where there is room, and then visible through other paths.
    pub(super) fn append(&self, name: &Arc<str>) -> Path {
        let capacity = self.storage.borrow().len();
        if self.length < capacity {
            self.storage.borrow_mut()[self.length] = Some(name.clone());
            return Path { storage: Rc::clone(&self.storage), length: self.length + 1 };
        }
        let mut storage = self.storage.borrow()[..self.length].to_vec();
        storage.push(Some(name.clone()));
        storage.resize((2 * capacity).max(self.length + 1), None);
        Path { storage: Rc::new(RefCell::new(storage)), length: self.length + 1 }
    }

    /// A longer path sharing nothing with this one.
    pub(super) fn copy_and_append(&self, name: &str) -> Path {
        let mut storage = self.storage.borrow()[..self.length].to_vec();
        storage.push(Some(name.into()));
        Path { length: storage.len(), storage: Rc::new(RefCell::new(storage)) }
    }

    /// The maximum size by the declarations of the device; `None` where they have none.
    pub(super) fn device_size(&self) -> Option<u64> {
        let storage = self.storage.borrow();
        let mut parts = storage[..self.length].iter().map(Option::as_deref);
        if parts.next() != Some(Some("device")) {
            return None;
        }
        let mut at = Declared::Device;
        for part in parts {
            at = at.step(part.unwrap_or_default())?;
        }
        Some(at.size())
    }
}

/// The types of a device's parts.
#[derive(Debug, Clone, Copy)]
enum Declared {
    Device,
    Driver,
    MultipleAllocations,
    /// `device.attributes` (`true`) or `device.capacity`.
    Domains(bool),
    Domain(bool),
    Attribute,
    Quantity,
    DomainName,
    Identifier,
}

impl Declared {
    fn step(self, part: &str) -> Option<Declared> {
        Some(match (self, part) {
            (Declared::Device, "driver") => Declared::Driver,
            (Declared::Device, "allowMultipleAllocations") => Declared::MultipleAllocations,
            (Declared::Device, "attributes") => Declared::Domains(true),
            (Declared::Device, "capacity") => Declared::Domains(false),
            (Declared::Domains(_), "@keys") => Declared::DomainName,
            (Declared::Domains(side), "@items" | "@values") => Declared::Domain(side),
            (Declared::Domain(_), "@keys") => Declared::Identifier,
            (Declared::Domain(true), _) => Declared::Attribute,
            (Declared::Domain(false), "@items" | "@values") => Declared::Quantity,
            _ => return None,
        })
    }

    fn size(self) -> u64 {
        match self {
            // Upstream declares no size for these.
            Declared::Device | Declared::Quantity => 0,
            Declared::Driver => limits::DRIVER_NAME,
            Declared::MultipleAllocations => 1,
            Declared::Domains(_) | Declared::Domain(_) => limits::ATTRIBUTES_AND_CAPACITIES,
            Declared::Attribute => limits::ATTRIBUTE_VALUE,
            Declared::DomainName => limits::DOMAIN,
            Declared::Identifier => limits::IDENTIFIER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(parts: &[&str]) -> Path {
        let mut parts = parts.iter().map(|part| Arc::<str>::from(*part));
        let first = Path::of(&parts.next().unwrap_or_else(|| "device".into()));
        parts.fold(first, |path, part| path.append(&part))
    }

    #[test]
    fn sizes_are_those_of_the_declarations() {
        assert_eq!(path(&["device", "driver"]).device_size(), Some(63));
        assert_eq!(path(&["device", "attributes", "@values", "type"]).device_size(), Some(64));
        assert_eq!(path(&["device", "capacity", "@values", "memory"]).device_size(), None);
        assert_eq!(path(&["x", "driver"]).device_size(), None);
    }

    #[test]
    fn paths_share_as_slices_do() {
        let domain = path(&["device", "attributes", "@values"]);
        let key = domain.append(&"@keys".into());
        assert_eq!(key.device_size(), Some(32));
        let value = domain.append(&"@values".into());
        assert_eq!((key.device_size(), value.device_size()), (Some(64), Some(64)));
    }
}
