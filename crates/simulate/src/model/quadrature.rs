//! Gauss-Legendre quadrature.

const NODES: usize = 16;
const PANELS: u32 = 32;

/// ∫ f from `low` to `high`, for functions that are smooth on the scale of a panel.
pub fn integrate(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let rule = rule();
    let half = (high - low) / f64::from(PANELS) / 2.0;
    let panel = |i: u32| {
        let middle = low + half * (2.0 * f64::from(i) + 1.0);
        rule.iter().map(|(node, weight)| weight * f(middle + half * node)).sum::<f64>()
    };
    half * (0..PANELS).map(panel).sum::<f64>()
}

/// Nodes and weights on −1 … 1: the zeros of the Legendre polynomial by Newton's method.
fn rule() -> [(f64, f64); NODES] {
    std::array::from_fn(|i| {
        let n = NODES as f64;
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..8 {
            let (mut before, mut value) = (1.0, x);
            for j in 2..=NODES {
                let j = j as f64;
                (before, value) = (value, ((2.0 * j - 1.0) * x * value - (j - 1.0) * before) / j);
            }
            slope = n * (x * value - before) / (x * x - 1.0);
            x -= value / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn polynomials_are_exact() {
        let found = super::integrate(-1.0, 3.0, |x| x.powi(7) - 2.0 * x + 1.0);
        assert!((found - ((3_f64.powi(8) - 1.0) / 8.0 - 8.0 + 4.0)).abs() < 1e-11, "{found}");
    }
}
