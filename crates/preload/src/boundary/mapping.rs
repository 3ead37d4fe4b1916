//! Mappings: made at a given address, examined, and protected; and reads of memory without read permission.

use crate::boundary::apart::apart;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, c};

/// Maps fresh zeroed memory at exactly `span`, where nothing is mapped; `flags` as of [`sys::map_unused`].
pub fn map_at(span: Span, prot: i32, flags: i32) -> Result<(), Errno> {
    let at = sys::map_unused(span.start, span.len(), prot, flags)?;
    if at != span.start {
        // Kernels before 4.17 treat the address as a hint.
        // SAFETY: the mapping was just made, and nobody knows its address.
        let _ = unsafe { sys::munmap(at, span.len()) };
        return Err(Errno::EEXIST);
    }
    Ok(())
}

/// Whether one mapping contains all of `span`, so that its properties are the same everywhere. The test is an mremap:
/// it refuses to grow a range that crosses mappings before it finds that there is no room to grow.
pub fn is_within_one(span: Span) -> bool {
    const TOO_MUCH: usize = 1 << 46;
    // No free address range has this size.
    let grown = sys::grow_in_place(span.start, span.len(), TOO_MUCH);
    // The kernel refuses a sealed mapping before it looks at the size.
    !matches!(grown, Err(Errno::EFAULT | Errno::EPERM))
}

/// mprotect, or pkey_mprotect with `key` ≥ 0: the program's own request about its own memory.
pub fn protect(span: Span, prot: i32, key: i32) -> Result<(), Errno> {
    // SAFETY: the program itself requests this protection for its own memory.
    unsafe {
        match key {
            0.. => sys::pkey_mprotect(span.start, span.len(), prot, key),
            _ => sys::mprotect(span.start, span.len(), prot),
        }
    }
}

/// Reads memory that the program has closed to itself: the kernel's access to the process ignores protections.
pub fn read_closed(from: usize, into: &mut [u8]) -> Result<(), Errno> {
    apart(|| read_memory(from, into))?
}

fn read_memory(from: usize, into: &mut [u8]) -> Result<(), Errno> {
    let fd = sys::open(c"/proc/self/mem", c::O_RDONLY, 0)?;
    let mut done = 0;
    let result = loop {
        match into.get_mut(done..) {
            None | Some([]) => break Ok(()),
            Some(rest) => match sys::pread(fd, rest, from + done) {
                Ok(0) => break Err(Errno::EFAULT),
                Ok(bytes) => done += bytes,
                Err(errno) => break Err(errno),
            },
        }
    };
    sys::close(fd);
    result
}
