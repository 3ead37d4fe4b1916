//! Mappings: made at one place, looked at, and closed.

use crate::boundary::apart::apart;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, c};

/// Maps fresh zeroed memory at exactly `span`, where nothing is mapped; `flags` as of [`sys::map_unused`].
pub fn map_at(span: Span, prot: i32, flags: i32) -> Result<(), Errno> {
    let at = sys::map_unused(span.start, span.len(), prot, flags)?;
    if at != span.start {
        // Kernels before 4.17 take the address for a hint.
        // SAFETY: the mapping was just made and nobody knows of it.
        let _ = unsafe { sys::munmap(at, span.len()) };
        return Err(Errno::EEXIST);
    }
    Ok(())
}

/// Whether all of `span` belongs to one mapping, so that it carries the same everywhere: mremap refuses to grow what crosses
/// mappings before it finds that there is no room to grow.
pub fn is_within_one(span: Span) -> bool {
    const TOO_MUCH: usize = 1 << 46;
    // No room of this size exists anywhere.
    let grown = sys::grow_in_place(span.start, span.len(), TOO_MUCH);
    // A sealed mapping is refused for what it is, before its size is looked at.
    !matches!(grown, Err(Errno::EFAULT | Errno::EPERM))
}

/// mprotect, or pkey_mprotect with `key` ≥ 0: the program's own request about its own memory.
pub fn protect(span: Span, prot: i32, key: i32) -> Result<(), Errno> {
    // SAFETY: as the caller says.
    unsafe {
        match key {
            0.. => sys::pkey_mprotect(span.start, span.len(), prot, key),
            _ => sys::mprotect(span.start, span.len(), prot),
        }
    }
}

/// Reads memory that the program has closed to itself: the kernel's view of the process ignores protections.
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
