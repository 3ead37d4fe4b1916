//! The model's known values.

use pagelab_simulate::analytical_model::{expected_requests, fill};

#[test]
fn one_colour_refuses_the_request_after_the_last_page() {
    for k in [0, 1, 2, 10, 1000, 123_456, 10_000_000] {
        let found = expected_requests(1, k);
        assert!((found / (k as f64 + 1.0) - 1.0).abs() < 1e-12, "E(1, {k}) = {found}");
    }
}

#[test]
fn the_birthday_number() {
    assert!((expected_requests(365, 1) - 24.616_585_894_598_855).abs() < 1e-12);
}

#[test]
fn colours_without_pages_refuse_at_once() {
    for c in [1, 2, 64, 4096] {
        assert!((expected_requests(c, 0) - 1.0).abs() < 1e-12);
    }
}

/// Two colours, one page each: the second request is refused half the time, else the third is.
#[test]
fn two_colours_of_one_page() {
    assert!((expected_requests(2, 1) - 2.5).abs() < 1e-12);
}

#[test]
fn random_allocation_agrees() {
    for (c, k) in [(4, 16), (64, 4), (365, 1)] {
        let found = fill(c, k + 1, 20_000, 7);
        let error = found.deviation / f64::from(found.runs).sqrt();
        assert!((found.mean - expected_requests(c, u64::from(k))).abs() < 5.0 * error, "{c} {k} {found:?}");
    }
}
