//! Invariants of the pools, checked after every step: for tests (feature `expensive`). A violation is reported, and the
//! process ends.

use core::sync::atomic::{AtomicU32, Ordering};

use pagelab_frames::{SlotId, State, Stock};

use crate::boundary::arch::PAGE;
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::pool::Pools;
use crate::frames::pool::chunks::SLOTS;
use crate::state::message::say;

/// Chunks take turns: each check examines the pages of a few.
static TURN: AtomicU32 = AtomicU32::new(0);

impl Pools {
    /// Checks everything, after the step `what`.
    pub fn check(&self, what: &str) {
        for (number, pool) in self.all.iter().enumerate() {
            let Some(pool) = pool else { continue };
            if let Err(broken) = pool.stock.validate() {
                fail(format_args!("pool {number} after {what}: {broken}"));
            }
            let most = pool.most_bytes().max(1 << 21);
            if pool.wanted.is_empty() && pool.held_bytes() > most + (1 << 21) {
                fail(format_args!("pool {number} after {what}: {} bytes of {most}", pool.held_bytes()));
            }
            let chunk = TURN.fetch_add(1, Ordering::Relaxed) % pool.stock.chunk_limit().max(1);
            check_pages(&pool.stock, chunk, self.tools.pagemap, what);
        }
    }
}

/// Checks that free pages are present, unless they are in swap, and that they are zero.
fn check_pages(stock: &Stock<'_>, chunk: u32, pagemap: Pagemap, what: &str) {
    let Some(address) = stock.chunk_address(chunk) else { return };
    let mut frames = [0; SLOTS];
    if pagemap.read(address, &mut frames).is_err() {
        return;
    }
    for (index, frame) in (0..).zip(frames) {
        let slot = SlotId::new(chunk, index);
        let page = address + index as usize * PAGE;
        match (stock.state(slot), frame) {
            (Some(State::Free), 0) if !pagemap.is_swapped(page) => {
                fail(format_args!("after {what}: the free slot {} has no page", slot.0));
            }
            (Some(State::Free), 1..) => {
                // SAFETY: the page is the pool's and present; nobody writes to it while the engine is locked.
                let words = unsafe { core::slice::from_raw_parts(page as *const u64, PAGE / size_of::<u64>()) };
                if words.iter().any(|word| *word != 0) {
                    fail(format_args!("after {what}: the free page in slot {} is not zero", slot.0));
                }
            }
            (Some(State::Empty), 1..) => {
                fail(format_args!("after {what}: the empty slot {} has a page", slot.0));
            }
            _ => {}
        }
    }
}

#[cold]
fn fail(what: core::fmt::Arguments<'_>) {
    say(format_args!("broken invariant: {what}"));
    // SAFETY: an undefined instruction touches no memory; it ends the process, whatever the process does with signals.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
