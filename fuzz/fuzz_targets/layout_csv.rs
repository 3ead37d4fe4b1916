//! Any text is read as a layout or refused; a policy made of it survives being written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelab_policy::flags::{Document, Flags, apply};
use pagelab_policy::read::no_files;
use pagelab_policy::validate::validate;
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, parse};

fuzz_target!(|text: &str| {
    let machine = Machine::generic_x86_64();
    let layout = Document { path: "fuzz.csv".to_owned(), text: text.to_owned() };
    let flags = Flags { layout: Some(layout), ..Flags::default() };
    let Ok(policy) = apply(None, &flags, &no_files).and_then(|raw| validate(&raw, &machine)) else { return };
    let again = parse(&to_toml(&policy), "again.toml", &machine, &no_files).expect("what was written is read");
    assert_eq!(again, policy);
});
