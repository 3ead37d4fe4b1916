//! Programs with a userfaultfd of their own.
//!
//! If such a userfaultfd requests events of memory calls (munmap, mremap, MADV_DONTNEED), each of these calls waits
//! until another thread of the program has read the message, and that thread may make such calls itself meanwhile.
//! Under the library's lock they would wait for each other. So the library stops its work first, as it does for seccomp
//! filters.

use crate::boundary::sys::{self, Result};
use crate::memory::calls;
use crate::state::seccomp as flags;

use super::entry::{unless_raw, with_room};
use super::seccomp;

/// ioctl(2) with the program's own arguments.
pub fn ioctl(fd: i32, request: usize, argument: usize) -> Result<usize> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::ioctl(fd, request, argument) };
    // The kernel reads only 32 bits of the request.
    match request as u32 as usize {
        _ if flags::is_raw() => raw(),
        calls::API if calls::wants_events(argument) => seccomp::around(true, raw),
        calls::REGISTER => {
            // Read on the program's stack: it may lie in pages that the program itself provides.
            let Some([start, len, mode]) = calls::to_register(argument) else { return raw() };
            let span = unless_raw(|| calls::registering(start, len, mode)).flatten();
            let result = with_room(start, len, raw);
            if let Some(span) = span {
                unless_raw(|| calls::registered(span, result.is_ok()));
            }
            result
        }
        _ => raw(),
    }
}
