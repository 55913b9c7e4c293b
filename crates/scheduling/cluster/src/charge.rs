//! What the holders of each namespace are charged for: the worth of their devices, by class of card.
//!
//! Nothing is booked: a charge is part of a hold, and ends with the hold. A device keeps the worth of the time when it was taken, also after its
//! slice is gone; a device unknown then is charged anew once its slice is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_allocator::held::DeviceHold;
use tessera_allocator::inventory::{DeviceRef, Inventory};
use tessera_api::attribute;

use crate::holder::Holder;
use crate::worth::Worth;

/// Properties shared by all cards of a model in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardClass {
    /// [`attribute::PRODUCT_NAME`].
    pub product_name: Option<String>,
    /// [`attribute::ARCHITECTURE`].
    pub architecture: Option<String>,
    /// [`attribute::BRAND`].
    pub brand: Option<String>,
    /// [`attribute::GPU_POOL`].
    pub gpu_pool: Option<String>,
    /// Whether the device was not in the inventory, so that its card may be any.
    pub is_unknown: bool,
}

impl CardClass {
    /// The class of the device's card.
    #[must_use]
    pub fn of(device: DeviceRef<'_>) -> Self {
        let text = |name| device.text_attribute(name).map(str::to_owned);
        CardClass {
            product_name: text(attribute::PRODUCT_NAME),
            architecture: text(attribute::ARCHITECTURE),
            brand: text(attribute::BRAND),
            gpu_pool: text(attribute::GPU_POOL),
            is_unknown: false,
        }
    }
}

/// Charge of one hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Charge {
    parts: Vec<(Arc<CardClass>, Worth)>,
    /// Whether a device was not in the inventory.
    is_guessed: bool,
}

impl Charge {
    /// The worth of each device.
    pub fn parts(&self) -> impl Iterator<Item = (&CardClass, Worth)> {
        self.parts.iter().map(|(class, worth)| (class.as_ref(), *worth))
    }
}

/// Charges of all namespaces.
#[derive(Debug, Default)]
pub struct Charges {
    /// The driver whose devices are charged for; `None`: nothing is.
    driver: Option<String>,
    classes: BTreeSet<Arc<CardClass>>,
    of_namespaces: BTreeMap<String, BTreeMap<Arc<CardClass>, Worth>>,
    guessed: BTreeSet<Holder>,
    /// Cards of existing claims, by namespace.
    of_claims: BTreeMap<String, BTreeMap<Arc<CardClass>, u64>>,
}

impl Charges {
    /// What holders in the namespace take now, by class of card.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&CardClass, Worth)> {
        let all = self.of_namespaces.get(namespace).into_iter().flatten();
        all.map(|(class, worth)| (class.as_ref(), *worth))
    }

    /// Millionths of a card taken by existing claims, by namespace and class: without nominated devices, and without those promised to claims to be made.
    pub fn of_claims(&self) -> impl Iterator<Item = (&str, &CardClass, u64)> {
        self.of_claims.iter().flat_map(|(namespace, classes)| {
            classes.iter().map(move |(class, cards)| (namespace.as_str(), class.as_ref(), *cards))
        })
    }

    /// Namespaces with a charge.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.of_namespaces.keys().map(String::as_str)
    }

    /// Begins to charge for this driver's devices, or ends it. Returns whether that is a change, after which all holds have to be charged.
    pub(crate) fn set_driver(&mut self, driver: Option<&str>) -> bool {
        let is_change = self.driver.as_deref() != driver;
        if is_change {
            *self = Charges { driver: driver.map(str::to_owned), ..Charges::default() };
        }
        is_change
    }

    /// Whether these are the charges of all holders, with nothing left over, and nobody is left out while devices are charged for.
    pub(crate) fn are_of<'c>(&self, holds: impl Iterator<Item = (&'c Holder, Option<&'c Charge>)>) -> bool {
        let mut anew = Charges::default();
        for (holder, charge) in holds {
            if charge.is_some() != self.driver.is_some() {
                return false;
            }
            charge.into_iter().for_each(|charge| anew.add(holder, charge));
        }
        self.guessed == anew.guessed && self.sums().eq(anew.sums())
    }

    fn sums(&self) -> impl Iterator<Item = (&str, &CardClass, Worth)> {
        let all = self.namespaces().flat_map(|namespace| {
            self.of_namespace(namespace).map(move |(class, worth)| (namespace, class, worth))
        });
        all.filter(|(.., worth)| *worth != Worth::default())
    }

    /// Holders with a device unknown when it was charged for.
    pub(crate) fn guessed(&self) -> impl Iterator<Item = &Holder> {
        self.guessed.iter()
    }

    /// The charge for these devices; `None` while nothing is charged for.
    pub(crate) fn of(&mut self, inventory: &Inventory, devices: &[DeviceHold]) -> Option<Charge> {
        let driver = self.driver.as_deref()?;
        let mut charge = Charge::default();
        for hold in devices.iter().filter(|hold| hold.driver() == driver) {
            let device = inventory.find(driver, hold.pool(), hold.device()).next();
            let (class, worth) = match device {
                Some(device) => (CardClass::of(device), Worth::of_hold(device, hold)),
                None => (CardClass { is_unknown: true, ..CardClass::default() }, Worth::UNKNOWN),
            };
            charge.is_guessed |= device.is_none();
            let class = match self.classes.get(&class) {
                Some(known) => known.clone(),
                None => {
                    let class = Arc::new(class);
                    self.classes.insert(class.clone());
                    class
                }
            };
            charge.parts.push((class, worth));
        }
        Some(charge)
    }

    /// Adds the charge of a holder.
    pub(crate) fn add(&mut self, holder: &Holder, charge: &Charge) {
        if charge.is_guessed {
            self.guessed.insert(holder.clone());
        }
        if charge.parts.is_empty() {
            return;
        }
        let of_namespace = self.of_namespaces.entry(holder.namespace().to_owned()).or_default();
        for (class, worth) in &charge.parts {
            *of_namespace.entry(class.clone()).or_default() += *worth;
        }
        if holder.claim().is_some() {
            let of_claims = self.of_claims.entry(holder.namespace().to_owned()).or_default();
            for (class, worth) in &charge.parts {
                let sum = of_claims.entry(class.clone()).or_default();
                *sum = sum.saturating_add(worth.cards);
            }
        }
    }

    /// Takes the charge of a holder away.
    pub(crate) fn remove(&mut self, holder: &Holder, charge: &Charge) {
        self.guessed.remove(holder);
        let Some(of_namespace) = self.of_namespaces.get_mut(holder.namespace()) else { return };
        for (class, worth) in &charge.parts {
            if let Some(sum) = of_namespace.get_mut(class) {
                *sum -= *worth;
            }
        }
        if let Some(of_claims) =
            self.of_claims.get_mut(holder.namespace()).filter(|_| holder.claim().is_some())
        {
            for (class, worth) in &charge.parts {
                if let Some(sum) = of_claims.get_mut(class) {
                    *sum = sum.saturating_sub(worth.cards);
                }
            }
            of_claims.retain(|_, cards| *cards > 0);
        }
        of_namespace.retain(|_, worth| *worth != Worth::default());
        if of_namespace.is_empty() {
            self.of_namespaces.remove(holder.namespace());
            self.of_claims.remove(holder.namespace());
        }
    }
}
