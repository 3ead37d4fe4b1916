//! Writing jumps over the entries of functions in other libraries.
//!
//! All entries are checked before the first byte is written: either every detour is in place, or none. Only done while
//! the process has one thread, because a 14-byte write is not atomic.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use pagelab_abi::guest::DisabledReason;

use crate::boundary::arch::{self, DETOUR_BYTES, PAGE};
use crate::boundary::elf::Object;
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::{self, Advice, Errno, c};

/// Code that the entry must have.
#[derive(Clone, Copy)]
pub enum Shape {
    /// A wrapper around this system call.
    Syscall(u32),
    /// libc's `syscall`.
    GenericSyscall,
    /// An empty function.
    Empty,
}

/// One function to be detoured.
pub struct Wanted {
    /// Its name.
    pub name: &'static CStr,
    /// Its required code.
    pub shape: Shape,
    /// Its target.
    pub target: usize,
    /// Whether its absence is fine (newer functions).
    pub optional: bool,
}

/// A checked entry.
#[derive(Clone, Copy)]
struct Entry {
    address: usize,
    target: usize,
}

const MOST: usize = 32;

/// Checked entries, not yet written.
pub struct Detours {
    entries: [Entry; MOST],
    count: usize,
}

/// Why detours could not be made, and at which function.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The reason.
    pub reason: DisabledReason,
    /// The function.
    pub name: &'static CStr,
    /// errno, where there is one.
    pub errno: Option<Errno>,
}

impl Detours {
    /// No detours.
    pub fn none() -> Detours {
        Detours { entries: [Entry { address: 0, target: 0 }; MOST], count: 0 }
    }

    /// Checks all of `wanted` in `object` and adds them.
    pub fn add(&mut self, object: &Object, wanted: &[Wanted]) -> Result<(), Refusal> {
        for one in wanted {
            let refuse = |reason| Refusal { reason, name: one.name, errno: None };
            let Some(symbol) = object.symbol(one.name) else {
                if one.optional {
                    continue;
                }
                return Err(refuse(DisabledReason::SymbolMissing));
            };
            // Functions are 16-aligned; what lies between an empty one's end and the next is padding, checked below.
            let room = if matches!(one.shape, Shape::Empty) { DETOUR_BYTES } else { 0 };
            // SAFETY: the object is loaded, and this is the only thread.
            let code = unsafe { symbol.contents(room) };
            let fits = code.len() >= arch::entry_offset(code) + DETOUR_BYTES;
            let as_expected = match one.shape {
                Shape::Syscall(number) => arch::wraps_syscall(code, number),
                Shape::GenericSyscall => arch::is_generic_syscall(code),
                Shape::Empty => arch::is_empty_function(code),
            };
            if !fits || !as_expected || arch::already_detoured(code) {
                return Err(refuse(DisabledReason::UnexpectedCode));
            }
            if let (Shape::GenericSyscall, Some(kept)) = (one.shape, arch::kept_instruction(code)) {
                arch::LIBC_SYSCALL.store(symbol.address + kept, Ordering::Relaxed);
            }
            let address = symbol.address + arch::entry_offset(code);
            if self.entries.iter().take(self.count).any(|entry| entry.address == address) {
                continue;
            }
            let slot = self.entries.get_mut(self.count).ok_or(refuse(DisabledReason::NoMemory))?;
            *slot = Entry { address, target: one.target };
            self.count += 1;
        }
        Ok(())
    }

    /// Detours within this distance of each other share a mapping: a page-table entry costs less than a mapping.
    const NEAR: usize = 128 * PAGE;

    /// Gives the pages that will be written mappings of their own.
    fn set_apart(&self) {
        let entries = || self.entries.iter().take(self.count).map(|entry| entry.address);
        let mut done = 0;
        while let Some(first) = entries().filter(|&address| address >= done).min() {
            let mut last = first;
            while let Some(next) = entries().filter(|&next| next > last && next - last <= Self::NEAR).min() {
                last = next;
            }
            done = last + DETOUR_BYTES;
            set_pages_apart(Span::new(align_down(first, PAGE), done.next_multiple_of(PAGE)));
        }
    }

    /// Writes all detours. If the first write is refused, nothing has changed.
    ///
    /// # Safety
    /// The process has one thread, every target has the signature of the function it replaces, and both stay loaded.
    pub unsafe fn write(&self) -> Result<(), Errno> {
        self.set_apart();
        let memory = sys::open(c"/proc/self/mem", c::O_RDWR, 0);
        let mut result = Ok(());
        for entry in self.entries.iter().take(self.count) {
            let code = arch::jump_to(entry.target);
            let written = match memory {
                Ok(fd) => sys::pwrite(fd, &code, entry.address),
                Err(errno) => Err(errno),
            };
            if written != Ok(DETOUR_BYTES) {
                // SAFETY: the caller promises one thread, fitting targets, and that both stay loaded.
                result = unsafe { write_unprotected(entry.address, &code) };
                if result.is_err() {
                    break;
                }
            }
        }
        if let Ok(fd) = memory {
            sys::close(fd);
        }
        result
    }
}

/// Makes the pages from the first detour to the last of one object a mapping of their own. The written pages are
/// private copies, and at each fork the kernel copies the page table of every mapping that has any (30 µs for all of
/// libc's text). MADV_DONTDUMP separates the mapping from its neighbours; its only effect is that core files have the
/// function as the object's file has it.
fn set_pages_apart(pages: Span) {
    let _ = sys::advise(pages.start, pages.len(), Advice::NotInDumps);
}

/// The fallback: where /proc/self/mem is out of reach, makes the pages writable for a moment.
///
/// # Safety
/// As [`Detours::write`].
unsafe fn write_unprotected(address: usize, code: &[u8; DETOUR_BYTES]) -> Result<(), Errno> {
    let start = address & !(PAGE - 1);
    let len = address + DETOUR_BYTES - start;
    let len = len.next_multiple_of(PAGE);
    // SAFETY: the pages are libc's text: their protection is read and execute, and becomes that again.
    unsafe {
        sys::mprotect(start, len, c::PROT_RW | c::PROT_EXEC)?;
        core::ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, DETOUR_BYTES);
        sys::mprotect(start, len, c::PROT_READ | c::PROT_EXEC)
    }
}
