//! Student's t, for the mean of a few numbers that are about normal.

/// Upper 2.5% points for 1 to 9 degrees of freedom, from the tables.
const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// The same point of the normal distribution.
const Z: f64 = 1.959_964;

/// The upper 2.5% point of Student's t with so many degrees of freedom (at least 1): half the width of a 95% interval in
/// standard errors. Beyond the table by the Cornish-Fisher expansion.
pub fn upper_point(freedom: usize) -> f64 {
    if let Some(point) = freedom.checked_sub(1).and_then(|index| T.get(index)) {
        return *point;
    }
    let n = freedom as f64;
    let first = (Z.powi(3) + Z) / (4.0 * n);
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * n.powi(2));
    let third = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / (384.0 * n.powi(3));
    Z + first + second + third
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_agree_with_the_tables() {
        let tabulated = [
            (1, 12.706),
            (4, 2.776),
            (9, 2.262),
            (10, 2.228),
            (19, 2.093),
            (20, 2.086),
            (49, 2.010),
            (60, 2.000),
        ];
        for (freedom, expected) in tabulated {
            let point = upper_point(freedom);
            assert!((point - expected).abs() < 6e-4, "{freedom}: {point}");
        }
    }
}
