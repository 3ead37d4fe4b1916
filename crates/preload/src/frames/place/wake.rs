//! Threads that are woken together.
//!
//! A thread that is woken runs at once on some processor. Where several wait, the pages of the others are moved while it
//! runs, and each move has to interrupt its processor for what it may have cached (two to four times the price of the
//! move). So their pages are all moved first. One call wakes everybody who waits between the first and the last page:
//! a thread there whose message has not been read yet asks again.

use crate::boundary::span::Span;
use crate::frames::engine::{Engine, Later};

impl Engine {
    /// Wakes threads that wait for `span`, or has them woken later.
    pub(in crate::frames) fn wake_in_turn(&mut self, span: Span) {
        match &mut self.scratch.later {
            Some(later) => later.add(span),
            None => {
                let _ = self.pools.tools.uffd.wake(span);
            }
        }
    }

    /// Whether threads are woken later.
    pub(in crate::frames) fn wakes_later(&self) -> bool {
        self.scratch.later.is_some()
    }

    /// Threads that wait for pages that are placed from now on are woken by [`Engine::wake_all`].
    pub fn wake_later(&mut self) {
        self.scratch.later = Some(Later::none());
    }

    /// Wakes them.
    pub fn wake_all(&mut self) {
        if let Some(Later(Some(span))) = self.scratch.later.take() {
            let _ = self.pools.tools.uffd.wake(span);
        }
    }
}
