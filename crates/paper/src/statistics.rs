//! Means with their errors.

/// Mean and standard error of the mean (0 for a single number).
pub fn mean_and_error(numbers: &[f64]) -> (f64, f64) {
    run::record::Evaluation::mean_and_error(numbers)
}
