//! Any text is read or refused; what is read survives being written and compiled.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelab_policy::compile::{Options, compile};
use pagelab_policy::read::no_files;
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, parse};

fuzz_target!(|text: &str| {
    let machine = Machine::generic_x86_64();
    let Ok(policy) = parse(text, "fuzz.toml", &machine, &no_files) else { return };
    let written = to_toml(&policy);
    let again = parse(&written, "again.toml", &machine, &no_files).expect("what was written is read");
    assert_eq!(again, policy);
    if let Ok(plan) = compile(&policy, &machine, &Options::default()) {
        plan.encode().expect("a compiled plan is well-formed");
    }
});
