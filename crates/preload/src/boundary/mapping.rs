//! Mappings: made at a given address, examined, and protected; and reads of memory without read permission.

use crate::boundary::apart::apart;
use crate::boundary::arch::{PAGE, TASK_END};
use crate::boundary::span::{Span, align_up};
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
    // From any address, this ends behind the addresses of a program. (From a low one there may be 100 TiB of room, which
    // MAP_NORESERVE memory would take.)
    const TOO_MUCH: usize = TASK_END - PAGE;
    let grown = sys::grow_in_place(span.start, span.len(), TOO_MUCH);
    if grown.is_ok() {
        // Only above 128 TiB, where a processor has such addresses and the program has asked for one.
        let gained = Span::new(span.end, span.start.saturating_add(TOO_MUCH));
        // SAFETY: the kernel gave these addresses to the mapping a moment ago, and nobody knows of them.
        let _ = unsafe { sys::munmap(gained.start, gained.len()) };
    }
    // The kernel refuses a sealed mapping before it looks at the size.
    !matches!(grown, Err(Errno::EFAULT | Errno::EPERM))
}

/// Where the mapping at the beginning of `span`, whole pages, ends, or where `span` does; `None`: nothing is mapped
/// there, or the mapping is sealed.
pub fn end_of_first(span: Span) -> Option<usize> {
    let part = |pages: usize| Span::new(span.start, span.start + pages * PAGE);
    let (mut inside, mut outside) = (0, span.len() / PAGE + 1);
    let mut next = outside - 1;
    while next > inside {
        if is_within_one(part(next)) {
            inside = next;
        } else {
            outside = next;
        }
        next = inside + (outside - inside) / 2;
    }
    (inside > 0).then(|| part(inside).end)
}

/// Calls `visit` with the parts of `span`, whole pages, where nothing is mapped.
pub fn each_hole(span: Span, visit: &mut dyn FnMut(Span)) {
    let mut part = span;
    while !part.is_empty() {
        let has_hole = sys::is_mapped(part.start, part.len()).is_err();
        if has_hole && part.len() > PAGE && !is_free(part) {
            part.end = part.start + align_up(part.len() / 2, PAGE).unwrap_or(PAGE);
            continue;
        }
        if has_hole {
            visit(part);
        }
        part = Span::new(part.end, span.end);
    }
}

/// Whether the kernel says that something is mapped in `span`. Nothing is mapped to learn it: the kernel looks at the place
/// before it refuses a mapping without a type.
pub fn is_taken(span: Span) -> bool {
    let flags = c::MAP_ANONYMOUS | c::MAP_FIXED_NOREPLACE;
    // SAFETY: such a call maps nothing, and with NOREPLACE nothing that exists is touched.
    unsafe { sys::mmap(span.start, span.len(), c::PROT_NONE, flags, -1, 0) == Err(Errno::EEXIST) }
}

/// Whether nothing is mapped in `span`.
pub fn is_free(span: Span) -> bool {
    let free = map_at(span, c::PROT_NONE, c::MAP_NORESERVE).is_ok();
    if free {
        // SAFETY: the mapping was made just now, where nothing was.
        let _ = unsafe { sys::munmap(span.start, span.len()) };
    }
    free
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
