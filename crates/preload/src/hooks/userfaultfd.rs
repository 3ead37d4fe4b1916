//! Programs with a userfaultfd of their own.
//!
//! One that asks to be told of memory calls (events of munmap, mremap, MADV_DONTNEED) makes each of these calls wait until another thread
//! of the program has read the message, and that thread may make such calls itself meanwhile. Behind the library's lock they would wait for
//! each other. So the library steps aside before, as it does for seccomp filters.

use crate::boundary::sys::{self, Result};
use crate::memory::calls;
use crate::state::{own_stack, seccomp as flags};

use super::seccomp;

/// ioctl(2) with the program's own arguments.
pub fn ioctl(fd: i32, request: usize, argument: usize) -> Result<usize> {
    // SAFETY: the program's own request.
    let raw = || unsafe { sys::ioctl(fd, request, argument) };
    // The kernel looks at 32 bits.
    match request as u32 as usize {
        _ if flags::is_raw() => raw(),
        calls::API if calls::wants_events(argument) => seccomp::around(true, raw),
        calls::REGISTER => {
            own_stack::run(|| calls::registering(argument));
            raw()
        }
        _ => raw(),
    }
}
