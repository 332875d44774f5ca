//! The tail of the chi-square distribution, by the incomplete gamma function (Numerical Recipes, 6.2).

/// The probability that a chi-square variable with these degrees of freedom is at least `statistic`.
pub fn chi_square_tail(statistic: f64, degrees: usize) -> f64 {
    upper_gamma(degrees as f64 / 2.0, statistic / 2.0)
}

/// Σ (observed − expected)² / expected.
pub fn chi_square(observed: &[u64], expected: &[f64]) -> f64 {
    observed.iter().zip(expected).map(|(&n, e)| (n as f64 - e).powi(2) / e).sum()
}

/// Q(a, x) = Γ(a, x) / Γ(a): a series below a + 1, Lentz's continued fraction above.
fn upper_gamma(a: f64, x: f64) -> f64 {
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-15 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut fraction = d;
    for i in 1..10_000 {
        let an = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        let nonzero = |value: f64| if value.abs() < tiny { tiny } else { value };
        d = 1.0 / nonzero(an * d + b);
        c = nonzero(b + an / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// ln Γ(a) for a > 0, by Stirling's series above 10 and the recurrence below.
fn ln_gamma(a: f64) -> f64 {
    if a < 10.0 {
        return ln_gamma(a + 1.0) - a.ln();
    }
    let series = 1.0 / (12.0 * a) - 1.0 / (360.0 * a.powi(3)) + 1.0 / (1260.0 * a.powi(5));
    (a - 0.5) * a.ln() - a + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two degrees of freedom the tail is exp(−x/2); the others are from the usual tables of critical values.
    #[test]
    fn the_tail_agrees_with_known_values() {
        for x in [0.1, 1.0, 5.0, 30.0] {
            assert!((chi_square_tail(x, 2) / (-x / 2.0f64).exp() - 1.0).abs() < 1e-9);
        }
        let critical = [
            (1, 3.841, 0.05),
            (1, 10.828, 0.001),
            (5, 11.070, 0.05),
            (10, 2.558, 0.99),
            (10, 18.307, 0.05),
            (10, 29.588, 0.001),
            (100, 61.918, 0.999),
            (100, 77.929, 0.95),
            (100, 124.342, 0.05),
            (100, 149.449, 0.001),
        ];
        for (degrees, statistic, tail) in critical {
            let got = chi_square_tail(statistic, degrees);
            // The statistics are given to three decimals.
            assert!((got / tail - 1.0).abs() < 1e-3, "{degrees} {statistic}: {got} instead of {tail}");
        }
    }
}
