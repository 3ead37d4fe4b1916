//! Strategies: the wanted colour or frame of each page of a program.
//!
//! The steps to a new one are in CONTRIBUTING.md, *A placement strategy*.

/// Implements `Strategy` for an enum of strategies: the answers are those of its variant.
macro_rules! dispatch {
    ($any:ident$(<$life:lifetime>)? { $($variant:ident),* }) => {
        impl Strategy for $any$(<$life>)? {
            fn want(&mut self, vpn: u64) -> Want {
                match self { $($any::$variant(strategy) => strategy.want(vpn),)* }
            }

            fn take_back(&mut self, count: usize) {
                match self { $($any::$variant(strategy) => strategy.take_back(count),)* }
            }

            fn is_by_address(&self) -> bool {
                match self { $($any::$variant(strategy) => strategy.is_by_address(),)* }
            }

            fn period(&self) -> u64 {
                match self { $($any::$variant(strategy) => strategy.period(),)* }
            }
        }
    };
}

mod listed;
mod module;
mod numbered;
#[cfg(test)]
mod tests;

pub use listed::{Exact, Modulo, Spans};
pub use module::{MODULE_SYMBOL, MODULE_VERSION, Module, ModuleError, ModuleSetup, ModuleTable};
pub use numbered::*;

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
    /// The wanted frame of page `vpn`. Called once for each page, in the order of placement. May keep state (bin
    /// hopping).
    fn want(&mut self, vpn: u64) -> Want;

    /// Takes back the last `count` answers: those pages were not placed after all (the run ended early).
    fn take_back(&mut self, count: usize);

    /// Whether `want` depends on the address alone, so that pages may be placed ahead in batches.
    fn is_by_address(&self) -> bool;

    /// Memory that is moved by a multiple of this many pages keeps its placement. 1: addresses do not matter; 0: there
    /// is no such number.
    fn period(&self) -> u64;
}

/// One of the strategies, dispatched without allocation.
#[derive(Clone, Copy, Debug)]
pub enum AnyStrategy<'p> {
    /// A strategy that reads no lists.
    Numbered(Numbered),
    /// A colour for each page.
    Modulo(Modulo<'p>),
    /// A frame for each page.
    Exact(Exact<'p>),
    /// The answers of a shared object.
    Module(Module),
}

impl<'p> AnyStrategy<'p> {
    /// The plan's `strategy` in the process `pid`; `None` for modules, which must be found and started first
    /// ([`Module::start`]).
    pub fn of_plan(plan: &Plan<'p>, strategy: &plan::Strategy, pid: u32) -> Option<AnyStrategy<'p>> {
        let (colours, values) = (strategy.colours, plan.words(strategy.values));
        let spans = Spans::new(plan.span_words(strategy), values);
        match strategy.kind {
            StrategyKind::Modulo if strategy.span_count() == 0 => {
                Some(AnyStrategy::Modulo(Modulo::repeating(colours, values)))
            }
            StrategyKind::Modulo => Some(AnyStrategy::Modulo(Modulo::replaying(colours, spans))),
            StrategyKind::Exact => Some(AnyStrategy::Exact(Exact::new(spans))),
            kind => {
                let numbers = Numbers {
                    colours,
                    first: (strategy.first != FIRST_FROM_SEED).then_some(strategy.first),
                    seed: strategy.seed,
                    hashed_pid: strategy.pid_hash.then_some(pid),
                };
                Numbered::new(kind, numbers).map(AnyStrategy::Numbered)
            }
        }
    }
}

dispatch! { AnyStrategy<'_> { Numbered, Modulo, Exact, Module } }
