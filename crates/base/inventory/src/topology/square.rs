/// A symmetric table over pairs of cards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Square<T> {
    size: usize,
    cells: Vec<T>,
}

impl<T: Clone + Default> Square<T> {
    /// Fills the table from one value for each pair; the diagonal has the default.
    pub fn of_pairs(size: usize, mut value: impl FnMut(usize, usize) -> T) -> Self {
        let mut cells = vec![T::default(); size * size];
        for one in 0..size {
            for other in one + 1..size {
                let value = value(one, other);
                cells[one * size + other] = value.clone();
                cells[other * size + one] = value;
            }
        }
        Self { size, cells }
    }

    /// The value of the pair `one`, `other`.
    pub fn get(&self, one: usize, other: usize) -> &T {
        &self.cells[one * self.size + other]
    }
}
