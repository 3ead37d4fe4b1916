//! The choice of the handler's processor.
//!
//! To wake a thread on another processor costs twice as much as to wake one on the processor that is about to idle. So
//! while the program has one thread, the handler runs on that thread's processor. If the program has several threads,
//! the scheduler chooses among the processors that the program may use.

use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};

use crate::boundary::sys::task::{self, MASK_WORDS};
use crate::boundary::{arch, elf, libc};

use super::priority;

/// Address at which the kernel stores the number of the processor that runs the program's first thread (its rseq area,
/// which glibc registers since 2.35); 0: unknown.
static PROCESSOR: AtomicUsize = AtomicUsize::new(0);
/// Offset of `cpu_id` in `struct rseq`.
const CPU_ID: usize = 4;
/// Offset of the rseq area from the thread pointer; 0: there is none.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Looks up the offset of rseq areas. Not to be done later: it takes the dynamic linker's lock.
pub fn learn() {
    let Some(libc) = elf::find(&|object| object.symbol(c"__rseq_offset").is_some()) else { return };
    let (Some(offset), Some(size)) = (libc.symbol(c"__rseq_offset"), libc.symbol(c"__rseq_size")) else { return };
    // SAFETY: these are glibc's variables, of these types, set before any initialiser runs and never changed.
    let (offset, size) = unsafe { (*(offset.address as *const isize), *(size.address as *const u32)) };
    OFFSET.store(if size > 0 { offset } else { 0 }, Ordering::Relaxed);
}

/// Makes the handler follow the calling thread, which is the program's only one.
pub fn attach() {
    let offset = OFFSET.load(Ordering::Relaxed);
    let area = arch::thread_pointer().wrapping_add_signed(offset);
    PROCESSOR.store(if offset == 0 { 0 } else { area + CPU_ID }, Ordering::Release);
}

/// The processor of the program's first thread, while it is the only one.
fn processor() -> Option<u32> {
    let place = PROCESSOR.load(Ordering::Acquire);
    if place == 0 || !libc::has_one_thread() {
        return None;
    }
    // SAFETY: the place lies in the first thread's control block, which exists while the process has one thread.
    let processor = unsafe { (*(place as *const AtomicU32)).load(Ordering::Relaxed) };
    // Negative: rseq is not registered (yet).
    (processor < (MASK_WORDS * 64) as u32).then_some(processor)
}

/// The handler's choice of processors.
pub struct Affinity {
    inherited: [u64; MASK_WORDS],
    words: usize,
    at: Option<u32>,
}

impl Affinity {
    /// All processors that the program may use.
    pub fn new() -> Affinity {
        let mut affinity = Affinity { inherited: [0; MASK_WORDS], words: 0, at: None };
        affinity.words = task::affinity(0, &mut affinity.inherited).map_or(0, |bytes| bytes / 8);
        affinity
    }

    fn allows(&self, processor: u32) -> bool {
        let word = self.inherited.get(processor as usize / 64).copied().unwrap_or(0);
        word >> (processor % 64) & 1 != 0
    }

    /// Moves the handler to the program's present processor.
    pub fn follow(&mut self) {
        // On the processor of a real-time thread of the same priority it might never run.
        let allowed = |processor: &u32| self.words > 0 && !priority::is_level() && self.allows(*processor);
        let wanted = processor().filter(allowed);
        if wanted == self.at {
            return;
        }
        let mut mask = [0; MASK_WORDS];
        let chosen = match wanted {
            None => &self.inherited,
            Some(processor) => {
                if let Some(word) = mask.get_mut(processor as usize / 64) {
                    *word = 1 << (processor % 64);
                }
                &mask
            }
        };
        let _ = task::set_affinity(chosen.get(..self.words).unwrap_or(&[]));
        self.at = wanted;
    }
}
