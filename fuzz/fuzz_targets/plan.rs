//! Any bytes are a plan or refused; what is accepted can be read everywhere without a fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagelab_policy::plan::{Memory, Plan};

fuzz_target!(|bytes: &[u8]| {
    let Ok(plan) = Plan::parse(bytes) else { return };
    let _ = plan.run_dir();
    for number in 0..plan.strategy_count() {
        let strategy = plan.strategy(number).unwrap();
        assert_eq!(plan.words(strategy.values).len(), strategy.values.count() as usize);
        for index in 0..strategy.span_count() {
            let span = plan.span(&strategy, index).unwrap();
            assert!(span.first_value + span.pages <= u64::from(strategy.values.count()));
        }
        let _ = (plan.module(&strategy), plan.argument(&strategy));
    }
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
