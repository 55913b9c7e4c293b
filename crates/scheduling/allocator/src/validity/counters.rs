//! Remaining counters of pools.

use hashbrown::HashMap;

use super::pools::Pool;
use crate::amount::Nanos;
use crate::features::UpstreamBugs;
use crate::held::Held;
use crate::inventory::{Consumption, DeviceRef, Inventory};
use crate::names::Name;

/// Counters of all pools, computed when first needed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    books: Vec<Book>,
    by_key: HashMap<(Option<Name>, Name), u32>,
    of_pool: Vec<Option<u32>>,
}

/// The counters of one pool; with upstream's bug, of all pools with the same name.
#[derive(Debug, Default)]
struct Book {
    sets: Vec<BookSet>,
    /// Index of a consumption's counter; [`UNKNOWN`] if the book has none.
    of_cell: HashMap<u32, u32>,
    /// Amounts not held, less the amounts taken by this search.
    left: Vec<Nanos>,
    /// A counter was overcommitted from the start.
    is_blocked: bool,
}

/// A counter set of the pool.
#[derive(Debug, Clone, Copy)]
struct BookSet {
    name: Name,
    /// Slice, and index of the set in the slice.
    slice: u32,
    index: u32,
    /// Index of its first counter in the book.
    first: u32,
}

const UNKNOWN: u32 = u32::MAX;

impl Counters {
    /// The book of the pool, computed at the first call.
    fn book(
        &mut self,
        inventory: &Inventory,
        held: &Held,
        pools: &[Pool],
        pool: u32,
        bugs: UpstreamBugs,
    ) -> &mut Book {
        self.of_pool.resize(pools.len(), None);
        let index = match self.of_pool[pool as usize] {
            Some(index) => index,
            None => {
                let of_pool = &inventory.pools[pools[pool as usize].pool as usize];
                let driver = (!bugs.counters_ignore_driver).then_some(of_pool.driver);
                let books = &mut self.books;
                let index = *self.by_key.entry((driver, of_pool.name)).or_insert_with(|| {
                    books.push(Book::new(inventory, held, &pools[pool as usize], bugs));
                    books.len() as u32 - 1
                });
                self.of_pool[pool as usize] = Some(index);
                index
            }
        };
        &mut self.books[index as usize]
    }

    /// Takes the device's consumption, if enough is left.
    pub fn take(
        &mut self,
        (inventory, held, pools): (&Inventory, &Held, &[Pool]),
        pool: u32,
        device: DeviceRef<'_>,
        bugs: UpstreamBugs,
    ) -> bool {
        self.book(inventory, held, pools, pool, bugs).take(inventory, device)
    }

    /// The first counter preventing the device from being taken: set, counter, needed, left. With upstream's bug this
    /// may be a counter without use for the device.
    pub fn shortage(
        &mut self,
        (inventory, held, pools): (&Inventory, &Held, &[Pool]),
        pool: u32,
        device: DeviceRef<'_>,
        bugs: UpstreamBugs,
    ) -> Option<(Name, Name, Nanos, Nanos)> {
        let book = self.book(inventory, held, pools, pool, bugs);
        let short = device.consumption_cells().iter().find_map(|cell| {
            let taken = &inventory.values.consumptions.items[*cell as usize];
            let place = book.place(inventory, *cell);
            let left = *book.left.get(place as usize)?;
            (left < taken.amount).then_some((taken.set, taken.counter, taken.amount, left))
        });
        if short.is_some() || !book.is_blocked {
            return short;
        }
        let worst = book.counters(inventory).filter(|(.., place)| book.left[*place as usize] < 0).min()?;
        let (set, counter, place) = worst;
        Some((set, counter, 0, book.left[place as usize]))
    }

    /// The device's consumption, by counter index.
    pub fn places(
        &mut self,
        (inventory, held, pools): (&Inventory, &Held, &[Pool]),
        pool: u32,
        device: DeviceRef<'_>,
        bugs: UpstreamBugs,
    ) -> Vec<(u32, Nanos)> {
        let book = self.book(inventory, held, pools, pool, bugs);
        let cells = device.consumption_cells().iter();
        cells
            .map(|cell| {
                (book.place(inventory, *cell), inventory.values.consumptions.items[*cell as usize].amount)
            })
            .filter(|(place, _)| *place != UNKNOWN)
            .collect()
    }

    /// Remaining amounts of these counters, and whether the pool is blocked.
    pub fn left(
        &mut self,
        (inventory, held, pools): (&Inventory, &Held, &[Pool]),
        pool: u32,
        places: &[u32],
        bugs: UpstreamBugs,
    ) -> (bool, Vec<Nanos>) {
        let book = self.book(inventory, held, pools, pool, bugs);
        (book.is_blocked, places.iter().map(|place| book.left[*place as usize]).collect())
    }

    /// The index of a consumption's counter, and its remaining amount.
    pub fn left_of(
        &mut self,
        (inventory, held, pools): (&Inventory, &Held, &[Pool]),
        pool: u32,
        cell: u32,
        bugs: UpstreamBugs,
    ) -> Option<(u32, Nanos)> {
        let book = self.book(inventory, held, pools, pool, bugs);
        let place = book.place(inventory, cell);
        Some((place, *book.left.get(place as usize)?))
    }

    /// Undoes [`Self::take`].
    pub fn give_back(&mut self, inventory: &Inventory, pool: u32, device: DeviceRef<'_>) {
        if let Some(Some(index)) = self.of_pool.get(pool as usize).copied() {
            let book = &mut self.books[index as usize];
            for cell in device.consumption_cells() {
                let place = book.place(inventory, *cell);
                if place != UNKNOWN {
                    book.left[place as usize] += inventory.values.consumptions.items[*cell as usize].amount;
                }
            }
        }
    }
}

impl BookSet {
    fn counters(self, inventory: &Inventory) -> &[(Name, Nanos)] {
        &inventory.slices[self.slice as usize].counter_sets[self.index as usize].counters
    }
}

/// Index of the consumed counter. A pool has too few sets and counters for a table per search to pay.
fn find(sets: &[BookSet], inventory: &Inventory, taken: &Consumption) -> Option<u32> {
    // Of two sets with one name, the last counts.
    sets.iter().rev().filter(|set| set.name == taken.set).find_map(|set| {
        let place = set.counters(inventory).iter().position(|(counter, _)| *counter == taken.counter)?;
        Some(set.first + place as u32)
    })
}

impl Book {
    fn new(inventory: &Inventory, held: &Held, pool: &Pool, bugs: UpstreamBugs) -> Self {
        let mut book = Book::default();
        let slice = |index: &u32| &inventory.slices[*index as usize];
        for place in &pool.counter_slices {
            for (index, set) in slice(place).counter_sets.iter().enumerate() {
                let (index, first) = (index as u32, book.left.len() as u32);
                book.sets.push(BookSet { name: set.name, slice: *place, index, first });
                book.left.extend(set.counters.iter().map(|(_, value)| *value));
            }
        }
        if !held.is_empty() {
            for index in pool.slices.iter().chain(&pool.others) {
                for index in slice(index).first_device..slice(index).end_device {
                    if held.get(index).is_none() {
                        continue;
                    }
                    for taken in (DeviceRef { inventory, index }).consumptions() {
                        if let Some(place) = find(&book.sets, inventory, taken) {
                            book.left[place as usize] -= taken.amount;
                        }
                    }
                }
            }
        }
        book.is_blocked = bugs.overcommitted_counter_blocks_pool && book.left.iter().any(|left| *left < 0);
        book
    }

    fn place(&mut self, inventory: &Inventory, cell: u32) -> u32 {
        let sets = &self.sets;
        *self.of_cell.entry(cell).or_insert_with(|| {
            find(sets, inventory, &inventory.values.consumptions.items[cell as usize]).unwrap_or(UNKNOWN)
        })
    }

    /// Set, counter and index of each counter.
    fn counters<'i>(&'i self, inventory: &'i Inventory) -> impl Iterator<Item = (Name, Name, u32)> + 'i {
        self.sets.iter().flat_map(|set| {
            (set.first..)
                .zip(set.counters(inventory))
                .map(|(place, (counter, _))| (set.name, *counter, place))
        })
    }

    fn take(&mut self, inventory: &Inventory, device: DeviceRef<'_>) -> bool {
        if self.is_blocked {
            return false;
        }
        let cells = device.consumption_cells();
        for (count, cell) in cells.iter().enumerate() {
            let place = self.place(inventory, *cell);
            if place == UNKNOWN {
                continue;
            }
            let amount = inventory.values.consumptions.items[*cell as usize].amount;
            let left = &mut self.left[place as usize];
            *left -= amount;
            if *left < 0 {
                for cell in &cells[..=count] {
                    let place = self.place(inventory, *cell);
                    if place != UNKNOWN {
                        self.left[place as usize] +=
                            inventory.values.consumptions.items[*cell as usize].amount;
                    }
                }
                return false;
            }
        }
        true
    }
}
