//! `/proc/kpageflags`: free frames, and frames that no process can have.

use pagelab_abi::plan::{ANYWHERE, Words};

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::sys::{self, c};

/// Frames of a huge page.
const SLOTS: usize = PMD / PAGE;

/// Bit of `/proc/kpageflags`: free, in the kernel's lists of blocks.
const BUDDY: u64 = 1 << 10;
/// Bits of frames that no program can have: no memory there, reserved, broken, offline.
const NEVER: u64 = 1 << 20 | 1 << 32 | 1 << 19 | 1 << 23;

/// The file, open; -1: not to be had, and then every frame may be free.
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

    /// Whether some of `frames` can be nobody's. False where the file is not to be had.
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
