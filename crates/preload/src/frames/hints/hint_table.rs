//! The table of the hints in use, and their numbers.

use core::cell::UnsafeCell;

use pagelab_abi::plan::{MAX_STRATEGIES, Strategy as Spec, StrategyKind, Words};
use pagelab_frames::strategy::{Numbered, PageColoring};
use pagelab_frames::{AnyStrategy, Colours};

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::areas;
use crate::frames::areas::PLACERS;
use crate::frames::engine::Engine;
use crate::frames::report::tally;
use crate::frames::threads::own_pages;
use crate::frames::threads::requests::{self, Kind};
use crate::state::lock::Locked;

use super::values::Values;

/// Bytes of the span (three words) before the frames of an exact hint.
pub const SPAN_BYTES: usize = 24;

/// Numbers of hints' strategies begin here, after the plan's.
pub const FIRST: usize = MAX_STRATEGIES;
/// Most different hints at a time.
const MOST: usize = PLACERS - FIRST;

/// A hint, read and checked.
pub struct Asked {
    /// The strategy as a plan would describe it, without lists.
    pub spec: Spec,
    /// Whether the first colour is drawn from the seed.
    pub draws_first: bool,
    /// The colour function.
    pub colours: Colours,
    /// The strategy in its first state.
    pub strategy: AnyStrategy<'static>,
    /// Its lists.
    pub values: Values,
}

impl Asked {
    /// The frames that the hint names.
    fn frames(&self) -> Words<'static> {
        let named = self.values.bytes().get(SPAN_BYTES..).filter(|_| self.spec.kind == StrategyKind::Exact);
        named.map_or(Words::default(), Words::new)
    }

    fn equals(&self, other: &Asked) -> bool {
        (self.spec, self.draws_first, self.colours) == (other.spec, other.draws_first, other.colours)
            && self.values.bytes() == other.values.bytes()
    }
}

/// Hints by number, from [`FIRST`] on.
pub type Table = [Option<Asked>; MOST];

/// The table of hints. A thread that sets or removes hints holds its lock.
pub static TABLE: Locked<Table> = Locked::new([const { None }; MOST]);

/// Data that the holder of the table's lock shares with the handler while it waits for the answer.
pub struct Shown<T>(pub UnsafeCell<T>);

// SAFETY: written by the holder of the table's lock before it asks, or by the handler while that holder waits.
unsafe impl<T> Sync for Shown<T> {}

/// The data about a hint that the handler receives; the last item is the frames that the hint names.
type Told = (Spec, Colours, AnyStrategy<'static>, Words<'static>);

static HINT: Shown<Option<Told>> = Shown(UnsafeCell::new(None));

/// Code of a strategy in the table of ranges.
pub fn code(number: usize) -> u8 {
    number as u8 + 1
}

/// The number of a hint's strategy. The handler knows the strategy afterwards.
pub fn number_of(table: &mut Table, asked: Asked) -> Result<usize> {
    let is_used = |at: usize| areas::uses(code(FIRST + at));
    let same = table.iter().position(|held| held.as_ref().is_some_and(|held| held.equals(&asked)));
    if let Some(at) = same.filter(|at| is_used(*at)) {
        asked.values.release();
        return Ok(FIRST + at);
    }
    let free =
        same.or_else(|| table.iter().position(Option::is_none)).or_else(|| (0..MOST).find(|at| !is_used(*at)));
    let Some(at) = free else {
        asked.values.release();
        return Err(Errno::ENOSPC);
    };
    let mut result = tell(FIRST + at, Some(&asked));
    if result == Err(Errno::ENOSPC) {
        // All pools are taken by other colour functions: the hint may reuse those of unused hints.
        drop_unused(table);
        result = tell(FIRST + at, Some(&asked));
    }
    let unwanted = match result {
        Ok(()) => table.get_mut(at).and_then(|place| place.replace(asked)),
        Err(_) => Some(asked),
    };
    if let Some(unwanted) = unwanted {
        unwanted.values.release();
    }
    result.map(|()| FIRST + at)
}

/// Tells the handler what strategy `number` is. (The table's lock is held.)
fn tell(number: usize, asked: Option<&Asked>) -> Result<()> {
    // SAFETY: the table's lock is held, and the handler has not been asked yet.
    unsafe { *HINT.0.get() = asked.map(|asked| (asked.spec, asked.colours, asked.strategy, asked.frames())) };
    ask(Kind::Hint, Span::new(number, number)).map(drop)
}

/// Forgets hints without ranges.
fn drop_unused(table: &mut Table) {
    for (number, place) in (FIRST..).zip(table.iter_mut()) {
        if place.is_some()
            && !areas::uses(code(number))
            && tell(number, None).is_ok()
            && let Some(unused) = place.take()
        {
            unused.values.release();
        }
    }
}

/// Sends a request to the handler, and returns its answer.
pub fn ask(kind: Kind, span: Span) -> Result<usize> {
    // ESRCH: the engine has ended (the program installed a seccomp filter).
    requests::ask(kind, span).map_err(|errno| if errno == Errno::ESRCH { Errno::EOPNOTSUPP } else { errno })
}

/// In a forked child: releases the lock, which none of its threads holds. (The numbers stay.)
pub fn forget_holder() {
    TABLE.reset_after_fork();
}

/// In a forked child with a new engine: describes the hints to its handler.
pub fn adopt_child() {
    let mut table = TABLE.lock();
    for (number, place) in (FIRST..).zip(table.iter_mut()) {
        if let Some(asked) = place {
            if asked.spec.pid_hash {
                let own = PageColoring::hashed(asked.colours.count(), sys::getpid());
                asked.strategy = AnyStrategy::Numbered(Numbered::PageColoring(own));
            }
            let _ = tell(number, Some(asked));
        }
    }
}

/// The handler's part.
impl Engine {
    /// Takes the hint passed by the requesting thread as strategy `number`; none: removes that strategy.
    pub fn take_hint(&mut self, number: usize) -> Result<usize> {
        // SAFETY: the requesting thread holds the table's lock and waits.
        let hint = unsafe { (*HINT.0.get()).take() };
        let Some((spec, colours, strategy, frames)) = hint else {
            if let Some(place) = self.placers.get_mut(number) {
                *place = None;
            }
            return Ok(number);
        };
        let is_exact = spec.kind == StrategyKind::Exact;
        if is_exact && self.opened_flags().has_impossible(frames) {
            return Err(Errno::EINVAL);
        }
        if spec.pin {
            own_pages::lock();
        }
        tally::assign(number, spec.kind, spec.colours);
        self.admit(number, &spec, colours, strategy)?;
        if is_exact {
            self.will_search(number, frames);
        }
        Ok(number)
    }
}
