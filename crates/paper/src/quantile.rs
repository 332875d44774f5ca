//! Quantiles of measured numbers.

/// The number below which that share of the numbers lies, linear between neighbours; 0.5 is the median.
pub fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (at - at.floor()) * (above - below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_numbers() {
        let numbers = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&numbers, share)), [1.0, 2.5, 4.0]);
        assert_eq!(quantile(&[7.0], 0.3), 7.0);
    }
}
