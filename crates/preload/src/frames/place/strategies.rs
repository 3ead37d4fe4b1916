//! The plan's strategies, set up for this process.

use pagelab_abi::plan::{Plan, Strategy as Spec, StrategyKind};
use pagelab_frames::AnyStrategy;

use super::module;

/// Strategy `number` in its first state; `None`: its module cannot be used.
pub fn build(plan: &Plan<'static>, number: u32, spec: &Spec, pid: u32) -> Option<AnyStrategy<'static>> {
    match spec.kind {
        StrategyKind::Module => module::start(plan, number, spec, pid).map(AnyStrategy::Module),
        _ => AnyStrategy::of_plan(plan, spec, pid),
    }
}
