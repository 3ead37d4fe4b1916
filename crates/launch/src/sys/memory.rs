//! Anonymous memory with a wish for its page size.

use std::io;

/// Alignment that lets every page size up to 2 MiB be used.
const ALIGNMENT: usize = 2 << 20;

/// Words of zeroed memory, mapped with base pages only or with huge pages where the kernel has them.
pub struct Words {
    base: *mut u8,
    mapped: usize,
    first: *mut u64,
    length: usize,
}

impl Words {
    /// Maps `bytes` (rounded down to words), aligned to 2 MiB.
    pub fn map(bytes: usize, huge: bool) -> io::Result<Words> {
        let mapped = bytes + ALIGNMENT;
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base: *mut u8 = base.cast();
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: advises exactly the mapping made above; a kernel without huge pages refuses, and has base pages.
        unsafe { libc::madvise(base.cast(), mapped, advice) };
        let first = base.wrapping_add(base.align_offset(ALIGNMENT)).cast();
        Ok(Words { base, mapped, first, length: bytes / 8 })
    }

    /// The words.
    pub fn as_slice(&mut self) -> &mut [u64] {
        // SAFETY: `first` is aligned and has `length` zeroed or written words inside the mapping, which lives as long
        // as `self`; the borrow of `self` keeps it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.length) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}
