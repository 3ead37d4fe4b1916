//! Any text is a saved map or refused; what is accepted becomes a policy that is written, read again and compiled.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelab_policy::compile::{Options, compile};
use pagelab_policy::read::no_files;
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, parse};

fuzz_target!(|text: &str| {
    let machine = Machine::generic_x86_64();
    let load = |_: &str| Ok(text.to_owned());
    for strategy in ["modulo", "exact"] {
        let Ok(policy) = parse(&format!("frames = {{ {strategy} = \"m\" }}"), "p.toml", &machine, &load) else {
            return;
        };
        let again = parse(&to_toml(&policy), "again.toml", &machine, &no_files).expect("what was written is read");
        assert_eq!(again, policy);
        let plan = compile(&policy, &machine, &Options::default()).expect("a map says its colours");
        plan.encode().expect("a compiled plan is well-formed");
    }
});
