//! Any words are read as flags or refused. One line is one flag; its first letter chooses which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelab_policy::Machine;
use pagelab_policy::flags::{Flags, apply};
use pagelab_policy::read::no_files;
use pagelab_policy::validate::validate;

fuzz_target!(|text: &str| {
    let mut flags = Flags::default();
    for line in text.lines() {
        match line.split_at_checked(1) {
            Some(("p", value)) => flags.pages.push(value.to_owned()),
            Some(("f", value)) => flags.fetch.push(value.to_owned()),
            Some(("r", value)) => flags.frames.push(value.to_owned()),
            Some(("v", value)) => flags.via = Some(value.to_owned()),
            _ => {}
        }
    }
    let _ = apply(None, &flags, &no_files).and_then(|raw| validate(&raw, &Machine::generic_x86_64()));
});
