//! `/proc/kpageflags`: free frames, and frames that no process can have.

use pagelab_abi::plan::{ANYWHERE, Words};

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::sys::{self, c};

/// Frames of a huge page.
const SLOTS: usize = PMD / PAGE;

/// Flag bit of frames that are free, in the kernel's lists of blocks.
const BUDDY: u64 = 1 << 10;
/// Flag bits of frames that no program can have: no memory there, reserved, broken, offline.
const NEVER: u64 = 1 << 20 | 1 << 32 | 1 << 19 | 1 << 23;

/// The open file; -1: it cannot be opened, and then every frame may be free.
#[derive(Clone, Copy)]
pub struct Flags(pub i32);

impl Flags {
    /// Opens it.
    pub fn open() -> Flags {
        Flags(sys::open(c"/proc/kpageflags", c::O_RDONLY, 0).unwrap_or(-1))
    }

    fn read(self, frame: u64, into: &mut [u64]) -> bool {
        let wanted = size_of_val(into);
        self.0 >= 0 && sys::pread_words(self.0, into, frame as usize * size_of::<u64>()) == Ok(wanted)
    }

    /// Whether `frame` may be free. (Free frames on the processors' own lists have no flag at all.)
    pub fn may_be_free(self, frame: u64) -> bool {
        let mut flags = [0u64; 1];
        !self.read(frame, &mut flags) || flags[0] & BUDDY != 0 || flags[0] == 0
    }

    /// Whether `frames` contains one that no program can have. False where the file cannot be opened.
    pub fn has_impossible(self, frames: Words<'_>) -> bool {
        let is_impossible = |frame: u64| {
            let mut flags = [0u64; 1];
            !self.read(frame, &mut flags) || flags[0] & NEVER != 0
        };
        self.0 >= 0 && frames.iter().any(|frame| frame != ANYWHERE && is_impossible(frame))
    }

    /// Whether all of the huge page around `frame` is free.
    pub fn is_whole_free(self, frame: u64) -> bool {
        let mut flags = [0u64; SLOTS];
        !self.read(frame / SLOTS as u64 * SLOTS as u64, &mut flags) || flags.iter().all(|word| word & BUDDY != 0)
    }
}
