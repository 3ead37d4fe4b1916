//! Machines and short cuts for the tests.
#![allow(dead_code, reason = "not every test file needs every helper")]

use pagelab_policy::machine::HugetlbPool;
use pagelab_policy::read::no_files;
use pagelab_policy::units::PageSize;
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, Policy, PolicyError, parse};

/// A user's machine: 4K and 2M, mTHP sizes known but not switchable, hugetlb known but empty.
pub fn plain_machine() -> Machine {
    let pool = |page_bytes| HugetlbPool { page_bytes, pages: Some(0), total_pages: Some(0) };
    Machine {
        mthp_switchable: false,
        hugetlb: vec![pool(PageSize::M2), pool(PageSize::G1)],
        ..Machine::generic_x86_64()
    }
}

/// Parses for a machine that offers everything.
pub fn parse_any(text: &str) -> Result<Policy, PolicyError> {
    parse(text, "p.toml", &Machine::generic_x86_64(), &no_files)
}

/// The policy, or the test fails with the error. Its text, which is what runs are given, must say the same.
pub fn accepted(result: Result<Policy, PolicyError>) -> Policy {
    let policy = result.unwrap_or_else(|error| panic!("{error}"));
    let text = to_toml(&policy);
    assert_eq!(parse_any(&text).as_ref(), Ok(&policy), "{text}");
    policy
}

/// The policy, or the test fails with the error.
pub fn policy(text: &str) -> Policy {
    accepted(parse_any(text).inspect_err(|_| eprintln!("{text}")))
}

/// The error, or the test fails with the policy.
pub fn refused(text: &str, machine: &Machine) -> PolicyError {
    match parse(text, "p.toml", machine, &no_files) {
        Ok(policy) => panic!("accepted:\n{text}\nas {policy:#?}"),
        Err(error) => error,
    }
}
