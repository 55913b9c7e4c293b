/// `1 / (1 + e^-x)`, alike on every platform.
#[must_use]
pub fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}
