//! Strategies: the wanted colour or frame of each page of a program.
//!
//! A new one is a file here, a variant of [`AnyStrategy`] and a word of the policy language; the engine does not change.

mod bin_hopping;
mod exact;
mod module;
mod modulo;
mod page_coloring;
mod random;
mod spans;
#[cfg(test)]
mod tests;

pub use bin_hopping::BinHopping;
pub use exact::Exact;
pub use module::{MODULE_SYMBOL, MODULE_VERSION, Module, ModuleError, ModuleSetup, ModuleTable};
pub use modulo::Modulo;
pub use page_coloring::PageColoring;
pub use random::Random;
pub use spans::Spans;

use pagelab_abi::plan::{self, FIRST_FROM_SEED, Plan, StrategyKind};

/// The wanted frame of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A frame of this colour.
    Colour(u32),
    /// This frame.
    Frame(u64),
    /// Any page.
    Any,
}

/// Decides where the pages of a range go.
pub trait Strategy {
    /// What the page `vpn` shall get. Called once a page, in the order pages are placed. May keep state (bin hopping).
    fn want(&mut self, vpn: u64) -> Want;

    /// Takes the last `count` answers back: those pages were not placed after all (the run ended early).
    fn take_back(&mut self, count: usize);

    /// Whether `want` depends on the address alone, so that pages may be placed ahead in batches.
    fn is_by_address(&self) -> bool;

    /// Pages after which the answers repeat: memory moved by a multiple of it keeps its placement. 0: they never do.
    fn period(&self) -> u64;
}

/// One of the strategies, dispatched without allocation.
#[derive(Clone, Copy, Debug)]
pub enum AnyStrategy<'p> {
    /// The virtual page's colour.
    PageColoring(PageColoring),
    /// The next colour.
    BinHopping(BinHopping),
    /// A colour for each page.
    Modulo(Modulo<'p>),
    /// A frame for each page.
    Exact(Exact<'p>),
    /// A random colour for each page.
    Random(Random),
    /// A shared object's.
    Module(Module),
}

impl<'p> AnyStrategy<'p> {
    /// The plan's `strategy` in the process `pid`; `None` for modules, which have to be found and started first
    /// ([`Module::start`]).
    pub fn of_plan(plan: &Plan<'p>, strategy: &plan::Strategy, pid: u32) -> Option<AnyStrategy<'p>> {
        let (colours, values) = (strategy.colours, plan.words(strategy.values));
        let spans = Spans::new(plan.span_words(strategy), values);
        Some(match strategy.kind {
            StrategyKind::PageColoring if strategy.pid_hash => {
                AnyStrategy::PageColoring(PageColoring::hashed(colours, pid))
            }
            StrategyKind::PageColoring => AnyStrategy::PageColoring(PageColoring::new(colours)),
            StrategyKind::BinHopping if strategy.first == FIRST_FROM_SEED => {
                AnyStrategy::BinHopping(BinHopping::seeded(colours, strategy.seed))
            }
            StrategyKind::BinHopping => AnyStrategy::BinHopping(BinHopping::starting_at(colours, strategy.first)),
            StrategyKind::Modulo if strategy.span_count() == 0 => {
                AnyStrategy::Modulo(Modulo::repeating(colours, values))
            }
            StrategyKind::Modulo => AnyStrategy::Modulo(Modulo::replaying(colours, spans)),
            StrategyKind::Exact => AnyStrategy::Exact(Exact::new(spans)),
            StrategyKind::Random => AnyStrategy::Random(Random::new(colours, strategy.seed)),
            StrategyKind::Module => return None,
        })
    }
}

macro_rules! each {
    ($any:expr, $strategy:ident => $what:expr) => {
        match $any {
            AnyStrategy::PageColoring($strategy) => $what,
            AnyStrategy::BinHopping($strategy) => $what,
            AnyStrategy::Modulo($strategy) => $what,
            AnyStrategy::Exact($strategy) => $what,
            AnyStrategy::Random($strategy) => $what,
            AnyStrategy::Module($strategy) => $what,
        }
    };
}

impl Strategy for AnyStrategy<'_> {
    fn want(&mut self, vpn: u64) -> Want {
        each!(self, strategy => strategy.want(vpn))
    }

    fn take_back(&mut self, count: usize) {
        each!(self, strategy => strategy.take_back(count))
    }

    fn is_by_address(&self) -> bool {
        each!(self, strategy => strategy.is_by_address())
    }

    fn period(&self) -> u64 {
        each!(self, strategy => strategy.period())
    }
}
