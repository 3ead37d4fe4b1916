//! The plan's strategies, set up for this process.

use pagelab_abi::plan::{FIRST_FROM_SEED, Plan, Strategy as Spec, StrategyKind};
use pagelab_frames::strategy::{BinHopping, Exact, Modulo, PageColoring, Random, Spans};
use pagelab_frames::{AnyStrategy, Colours};

use super::module;

/// The colour function of a strategy.
pub fn colours(plan: &Plan<'static>, spec: &Spec) -> Option<Colours> {
    let masks = plan.words(spec.masks);
    if masks.is_empty() { Colours::low_bits(spec.colours) } else { Colours::masked(masks.iter()) }
}

/// Strategy `number` in its first state; `None`: its module cannot be used.
pub fn build(plan: &Plan<'static>, number: u32, spec: &Spec, pid: u32) -> Option<AnyStrategy<'static>> {
    let colours = spec.colours;
    let values = plan.words(spec.values);
    let spans = || Spans::new(plan.span_words(spec), values);
    Some(match spec.kind {
        StrategyKind::PageColoring if spec.pid_hash => {
            AnyStrategy::PageColoring(PageColoring::hashed(colours, pid))
        }
        StrategyKind::PageColoring => AnyStrategy::PageColoring(PageColoring::new(colours)),
        StrategyKind::BinHopping if spec.first == FIRST_FROM_SEED => {
            AnyStrategy::BinHopping(BinHopping::seeded(colours, spec.seed))
        }
        StrategyKind::BinHopping => AnyStrategy::BinHopping(BinHopping::starting_at(colours, spec.first)),
        StrategyKind::Modulo if spec.span_count() > 0 => AnyStrategy::Modulo(Modulo::replaying(colours, spans())),
        StrategyKind::Modulo => AnyStrategy::Modulo(Modulo::repeating(colours, values)),
        StrategyKind::Exact => AnyStrategy::Exact(Exact::new(spans())),
        StrategyKind::Random => AnyStrategy::Random(Random::new(colours, spec.seed)),
        StrategyKind::Module => AnyStrategy::Module(module::start(plan, number, spec, pid)?),
    })
}
