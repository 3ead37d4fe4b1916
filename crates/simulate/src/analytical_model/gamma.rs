//! The regularised incomplete gamma functions, for parameters from 1 to beyond 10⁷.

/// ln Q(a, x), also where Q is close to 1.
pub fn log_upper(a: f64, x: f64) -> f64 {
    if x < a + 1.0 { (-lower(a, x)).ln_1p() } else { poisson(a, x).ln() + (a * fraction(a, x)).ln() }
}

/// P(a, x) for x below a + 1: x^a e^(−x) / Γ(a+1) · (1 + x/(a+1) + x²/((a+1)(a+2)) + …).
pub fn lower(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let (mut term, mut sum, mut n) = (1.0, 1.0, a);
    while term > sum * 1e-17 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    poisson(a, x) * sum
}

/// Legendre's continued fraction for Γ(a, x) e^x x^(−a), by Lentz's method; x at least a + 1.
fn fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let mut c = 1e300;
    let mut d = 1.0 / b;
    let mut value = d;
    for i in 1..1_000_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        let step = c * d;
        value *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    value
}

/// x^a e^(−x) / Γ(a+1), for whole a, without cancellation (Loader, "Fast and accurate computation of binomial
/// probabilities", 2000).
fn poisson(a: f64, x: f64) -> f64 {
    if a < 20.0 {
        let factorial: f64 = (1..=a as u32).map(f64::from).product();
        return (a * x.ln() - x).exp() / factorial;
    }
    (-stirling_rest(a) - deviance(a, x)).exp() / (std::f64::consts::TAU * a).sqrt()
}

/// ln a! − ln(√(2πa) (a/e)^a), for a ≥ 20.
fn stirling_rest(a: f64) -> f64 {
    let square = a * a;
    (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / 1188.0 / square) / square) / square) / square)
        / a
}

/// x − a + a ln(a/x).
fn deviance(a: f64, x: f64) -> f64 {
    if (a - x).abs() >= 0.1 * (a + x) {
        return a * (a / x).ln() + x - a;
    }
    let ratio = (a - x) / (a + x);
    let (mut sum, mut power) = ((a - x) * ratio, 2.0 * a * ratio);
    let mut odd = 1.0;
    loop {
        power *= ratio * ratio;
        odd += 2.0;
        let next = sum + power / odd;
        if next == sum {
            return sum;
        }
        sum = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_the_finite_sum() {
        for k in [0_u32, 1, 3, 19, 40] {
            for x in [0.1_f64, 0.9, 3.0, 17.0, 21.0, 42.0, 90.0] {
                let mut term = (-x).exp();
                let mut sum = term;
                for j in 1..=k {
                    term *= x / f64::from(j);
                    sum += term;
                }
                let found = log_upper(f64::from(k) + 1.0, x);
                assert!(
                    (found - sum.ln()).abs() < 1e-13 * found.abs().max(1.0),
                    "k {k} x {x}: {found} {}",
                    sum.ln()
                );
            }
        }
    }

    #[test]
    fn both_branches_of_the_poisson_weight_meet() {
        let direct = (20.0 * 25_f64.ln() - 25.0).exp() / (1..=20).map(f64::from).product::<f64>();
        assert!((poisson(20.0, 25.0) / direct - 1.0).abs() < 1e-13);
    }
}
