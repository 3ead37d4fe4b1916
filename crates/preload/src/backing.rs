//! The choice of backing: only this module decides between transparent huge pages, reserved pages, base pages and
//! placed frames. Only it calls the engine that places frames; higher storeys reach the engine through it.

pub mod hugetlb;
pub mod thp;

use pagelab_abi::guest::{Counter, GuestWarning};
use pagelab_abi::plan::Flags;

use crate::boundary::span::Span;
use crate::boundary::sys::{Errno, c};
use crate::boundary::{huge_pages, mapping};
use crate::frames;
pub use crate::frames::{
    advice_for, after_move, all_locked_or_unlocked, before_fork, before_guards, census, find_own_data,
    follow_priority, forbid, give_back, governs, governs_any, has_threads, hints, is_own, learn, list_existing,
    period, place_existing, populate, populate_all, program_uffd, retry_when_short, stop, unlocked, unpin,
};
use crate::state::layout::Backing;
use crate::state::{guest_file, plan};

/// Maps fresh zeroed read-write memory at exactly `span`, where nothing is mapped, and applies `backing`.
pub fn map_fresh(span: Span, backing: Backing) -> Result<(), Errno> {
    mapping::map_at(span, c::PROT_RW, 0)?;
    apply(span, backing);
    Ok(())
}

/// As [`map_fresh`], but in base pages for now.
pub fn map_small(span: Span) -> Result<(), Errno> {
    mapping::map_at(span, c::PROT_RW, 0)?;
    huge_pages::advise_base(span);
    Ok(())
}

/// Applies `backing` to memory that is already mapped: placed frames where a strategy governs the memory and no tile of
/// larger pages contains it; otherwise advice to the kernel.
pub fn apply(span: Span, backing: Backing) {
    if !backing.is_tiled() && frames::enter(span) {
        return;
    }
    thp::advise(span, backing);
}

/// Counts a request that goes to the kernel unchanged.
pub fn fallback(errno: Errno, len: usize) {
    let counter = match errno {
        Errno::ENOMEM => Counter::FallbackNoMemory,
        Errno::EEXIST => Counter::FallbackOccupied,
        _ => Counter::FallbackOther,
    };
    guest_file::count(counter);
    guest_file::warn(GuestWarning::Fallback, Some(errno), 0, len);
}

/// Gives a forked child its own engine for placing frames, unless the policy is not inherited.
pub fn adopt_child() {
    if let Some(plan) = plan::current() {
        frames::adopt_child(plan.flags().contains(Flags::INHERIT_FORK));
    }
}
