//! Faults that the first attempt could not resolve.
//!
//! A message may be outdated. If mappings of two threads lie side by side, a window opened for one thread brings in the
//! page for which the other one waits. The other thread continues and gives its memory back; its old message is
//! answered afterwards, and nothing can be moved there. A moment later another thread may have mapped the same
//! addresses, and an answer to the old message would fill that thread's page without placing it. So the waiting thread
//! is woken first; if it really waits, it faults again.

/// Most refusals remembered.
const MOST: usize = 64;
/// This many refusals in this short a time (ns) come from many threads that really wait; none may displace the others
/// for ever.
const SHORT: u64 = 10_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Refusal {
    page: usize,
    thread: u32,
    at_ns: u64,
}

/// Faults that were refused once: the page, and the thread.
pub struct StaleFaults {
    refusals: [Refusal; MOST],
    /// Index of the oldest refusal.
    next: usize,
}

impl StaleFaults {
    /// No refusals.
    pub const fn none() -> StaleFaults {
        StaleFaults { refusals: [Refusal { page: usize::MAX, thread: 0, at_ns: 0 }; MOST], next: 0 }
    }

    /// Notes that `thread` asked for `page` in vain, at `now_ns`. True: it really waits there, since it has asked
    /// before. False: it must be woken, and will ask again.
    pub fn settled(&mut self, page: usize, thread: u32, now_ns: u64) -> bool {
        if let Some(known) = self.refusals.iter_mut().find(|known| (known.page, known.thread) == (page, thread)) {
            *known = Refusal { page: usize::MAX, thread: 0, at_ns: 0 };
            return true;
        }
        let Some(oldest) = self.refusals.get_mut(self.next) else { return true };
        if oldest.page != usize::MAX && now_ns.saturating_sub(oldest.at_ns) < SHORT {
            return true;
        }
        *oldest = Refusal { page, thread, at_ns: now_ns };
        self.next = (self.next + 1) % MOST;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_again_is_believed() {
        let mut faults = StaleFaults::none();
        assert!(!faults.settled(0x1000, 7, 1));
        assert!(!faults.settled(0x2000, 7, 2), "another page");
        assert!(!faults.settled(0x1000, 8, 3), "another thread");
        assert!(faults.settled(0x1000, 7, 4));
        assert!(!faults.settled(0x1000, 7, 5), "a new question");
    }

    #[test]
    fn old_messages_are_forgotten() {
        let mut faults = StaleFaults::none();
        for number in 0..10 * MOST {
            assert!(!faults.settled(number << 12, 1, number as u64 * SHORT));
        }
        assert!(!faults.settled(0, 1, u64::MAX));
    }

    #[test]
    fn more_threads_than_places_do_not_wait_for_ever() {
        let mut faults = StaleFaults::none();
        let threads = 3 * MOST as u32;
        let rounds = 1..=4u64;
        let settled = rounds.map(|round| {
            (0..threads).filter(|thread| faults.settled((*thread as usize) << 12, *thread, round * 1000)).count()
        });
        assert!(settled.sum::<usize>() >= threads as usize);
    }
}
