//! Wake-ups of several waiting threads at once.
//!
//! A woken thread runs at once on some processor. If the pages of other waiting threads are moved while it runs, each
//! move must interrupt its processor to flush cached translations (two to four times the cost of the move). So all
//! their pages are moved first. Then one call wakes every thread that waits between the first and the last page. A
//! thread there whose message has not been read yet asks again.
//!
//! For that, messages must come together. If the scheduler keeps the threads on the handler's processor, they do. If it
//! spreads them, the handler must sleep for a moment until they reach their next faults. It is not known in advance
//! which of the two is faster, so both are measured.

use core::sync::atomic::AtomicU32;

use crate::boundary::span::Span;
use crate::boundary::sys::task;
use crate::frames::engine::{Engine, Later};

/// If this many faults were answered together, the handler may wait for others.
const MANY: usize = 3;
/// How long it waits, ns: about as long as a woken thread needs to reach its next fault.
const WHILE: u64 = 10_000;
/// The pace is measured over this many messages.
const ENOUGH: u64 = 256;
/// One measurement in this many is of the slower way, which may have become the faster.
const AGAIN: u32 = 16;
/// Messages further apart than this (ticks of the processor's clock, 0.1 to 0.3 ms) do not count as many at a time.
const APART: u64 = 1 << 18;

/// The decision whether to let faults gather.
pub struct Gathering {
    /// Whether the handler waits for more faults where there are many.
    waits: bool,
    /// Ticks per message without and with waiting; 0: not known yet.
    paces: [u64; 2],
    /// Number of measured paces.
    count: u32,
    /// The time since which messages are counted, and the time of the last one.
    since: u64,
    last: u64,
    messages: u64,
}

impl Gathering {
    /// The state before any measurement.
    pub const fn new() -> Gathering {
        Gathering { waits: true, paces: [0; 2], count: 0, since: 0, last: 0, messages: 0 }
    }

    /// Notes that `count` messages were answered together, the last one at `now`. Lets others gather where that is
    /// faster.
    pub fn answered(&mut self, count: usize, now: u64) {
        if self.is_worth_it(count, now) {
            task::futex_wait_for(&AtomicU32::new(0), 0, WHILE);
        }
    }

    fn is_worth_it(&mut self, count: usize, now: u64) -> bool {
        if now.wrapping_sub(core::mem::replace(&mut self.last, now)) > APART {
            (self.since, self.messages) = (now, 0);
        } else {
            self.messages += count as u64;
        }
        if self.messages >= ENOUGH {
            self.measured(now.wrapping_sub(self.since) / self.messages);
            (self.since, self.messages) = (now, 0);
        }
        self.waits && count >= MANY
    }

    fn measured(&mut self, pace: u64) {
        let [without, with] = &mut self.paces;
        let known = if self.waits { with } else { without };
        *known = pace;
        let [without, with] = self.paces;
        self.count = self.count.wrapping_add(1);
        self.waits = (with <= without) != self.count.is_multiple_of(AGAIN);
    }
}

impl Engine {
    /// Wakes threads that wait for `span`, or records that they are to be woken later.
    pub fn wake_in_turn(&mut self, span: Span) {
        match &mut self.scratch.later {
            Some(later) => later.add(span),
            None => {
                let _ = self.pools.tools.uffd.wake(span);
            }
        }
    }

    /// Whether threads are woken later.
    pub fn wakes_later(&self) -> bool {
        self.scratch.later.is_some()
    }

    /// From now on, [`Engine::wake_all`] wakes the threads that wait for placed pages.
    pub fn wake_later(&mut self) {
        self.scratch.later = Some(Later::none());
    }

    /// Wakes these threads.
    pub fn wake_all(&mut self) {
        if let Some(Later(Some(span))) = self.scratch.later.take() {
            let _ = self.pools.tools.uffd.wake(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers `batches` of `size` messages that take so many ticks without waiting, or with it. Returns how many were
    /// followed by a wait.
    fn answer(gathering: &mut Gathering, now: &mut u64, batches: usize, size: usize, ticks: [u64; 2]) -> usize {
        let mut waits = 0;
        for _ in 0..batches {
            *now += ticks[usize::from(gathering.waits)];
            waits += usize::from(gathering.is_worth_it(size, *now));
        }
        waits
    }

    #[test]
    fn what_is_faster_is_done_and_the_other_one_tried_now_and_then() {
        let (mut gathering, mut now) = (Gathering::new(), 1 << 40);
        assert!(answer(&mut gathering, &mut now, 320, 8, [60_000, 100_000]) <= 2 * 34);
        let few = answer(&mut gathering, &mut now, 3200, 8, [60_000, 100_000]);
        assert!((150..300).contains(&few), "one pace in 16: {few} of 3,200");
        // The threads run on other processors now.
        answer(&mut gathering, &mut now, 3200, 8, [200_000, 100_000]);
        let many = answer(&mut gathering, &mut now, 3200, 8, [200_000, 100_000]);
        assert!((2900..3050).contains(&many), "all but one pace in 16: {many} of 3,200");
    }

    #[test]
    fn few_messages_are_not_waited_for_and_pauses_count_for_nothing() {
        let (mut gathering, mut now) = (Gathering::new(), 1 << 40);
        assert_eq!(answer(&mut gathering, &mut now, 1000, 2, [1000, 1000]), 0);
        let mut gathering = Gathering::new();
        for _ in 0..1000 {
            answer(&mut gathering, &mut now, 1, 8, [1000, 1000]);
            now += 2 * APART;
        }
        assert_eq!((gathering.count, gathering.paces), (0, [0; 2]));
    }
}
