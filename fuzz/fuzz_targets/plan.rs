//! Any bytes are a plan or refused; what is accepted can be read everywhere without a fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelab_policy::plan::{Memory, Plan};

fuzz_target!(|bytes: &[u8]| {
    let Ok(plan) = Plan::parse(bytes) else { return };
    let _ = plan.run_dir();
    for memory in Memory::ALL {
        for length in [0, 4096, u64::MAX] {
            let Some(section) = plan.section_for(memory, length) else { continue };
            for offset in [0, 4096, 1 << 30, u64::MAX - 1] {
                let piece = plan.piece(&section, offset);
                assert!(piece.start <= offset && offset < piece.end);
            }
        }
    }
});
