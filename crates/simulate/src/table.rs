//! Tables of the simulators: growing arrays, which use large pages if they are large.
//!
//! A reference touches a few random places in tables of many megabytes. With pages of 4 KiB most of these touches also
//! miss the TLB. So a table of 2 MiB or more lies at a multiple of 2 MiB, and the kernel is asked to back it with large
//! pages. If it does not, nothing is lost.

#![allow(unsafe_code, reason = "Vec has no alignment of its own, and moves in ways that take large pages apart")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of a large page, and of the smallest table that has one.
const LARGE: usize = 2 << 20;

/// An array that can be made longer.
pub struct Table<T: Copy> {
    start: NonNull<T>,
    length: usize,
    capacity: usize,
    /// Its memory was mapped by itself ([`Table::zeros`]), not allocated.
    is_mapped: bool,
}

/// Integers: bytes that are all zero are one.
pub trait Integer: Copy {}
impl Integer for u32 {}
impl Integer for u64 {}

// SAFETY: a table owns its elements, as a vector does.
unsafe impl<T: Copy + Send> Send for Table<T> {}
// SAFETY: a table owns its elements, as a vector does, and a shared table is only read.
unsafe impl<T: Copy + Sync> Sync for Table<T> {}

impl<T: Copy> Table<T> {
    /// A table of `length` elements.
    pub fn new(length: usize, value: T) -> Self {
        let mut table = Self::default();
        table.resize(length, value);
        table
    }

    /// A table of `length` zeros, of which only those that are used take memory.
    pub fn zeros(length: usize) -> Self
    where
        T: Integer,
    {
        let layout = Self::layout(length);
        match (layout.size() >= LARGE).then(|| map_zeros(layout)).flatten() {
            Some(start) => Self { start: start.cast(), length, capacity: length, is_mapped: true },
            None => {
                let mut table = Self::default();
                table.reserve(length);
                // SAFETY: the capacity is at least `length`; zeros are integers.
                unsafe { table.start.write_bytes(0, length) };
                table.length = length;
                table
            }
        }
    }

    /// Makes the table `length` long; new elements get this value. A shorter table keeps its memory.
    pub fn resize(&mut self, length: usize, value: T) {
        if length > self.capacity {
            self.move_to(length.max(self.capacity * 2));
        }
        for index in self.length..length {
            // SAFETY: the index is below the capacity.
            unsafe { self.start.add(index).write(value) };
        }
        self.length = length;
    }

    /// Makes space for `length` elements.
    pub fn reserve(&mut self, length: usize) {
        if length > self.capacity {
            self.move_to(length);
        }
    }

    /// Adds elements at the end.
    pub fn extend(&mut self, elements: impl ExactSizeIterator<Item = T>) {
        let length = self.length + elements.len();
        if length > self.capacity {
            self.move_to(length.max(self.capacity * 2));
        }
        for (index, element) in (self.length..length).zip(elements) {
            // SAFETY: the index is below the capacity.
            unsafe { self.start.add(index).write(element) };
            self.length = index + 1;
        }
    }

    /// Makes the table empty; memory is kept.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    fn move_to(&mut self, capacity: usize) {
        let layout = Self::layout(capacity);
        if layout.size() == 0 {
            self.capacity = capacity;
            return;
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start.cast::<T>()) else { handle_alloc_error(layout) };
        advise(start.as_ptr().cast(), layout);
        // SAFETY: both are at least `length` long, and do not overlap, because one was just allocated.
        unsafe { start.copy_from_nonoverlapping(self.start, self.length) };
        self.release();
        (self.start, self.capacity, self.is_mapped) = (start, capacity, false);
    }

    fn release(&mut self) {
        let layout = Self::layout(self.capacity);
        if self.is_mapped {
            // SAFETY: `map_zeros` mapped it, for this layout.
            unsafe { libc::munmap(self.start.as_ptr().cast(), mapped(layout)) };
        } else if layout.size() > 0 {
            // SAFETY: `move_to` allocated it, with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }

    fn layout(capacity: usize) -> Layout {
        let layout = Layout::array::<T>(capacity).expect("tables are shorter than memory");
        if layout.size() < LARGE { layout } else { layout.align_to(LARGE).expect("a power of two") }
    }
}

/// Bytes of a mapping for this layout: whole pages, whatever their size.
fn mapped(layout: Layout) -> usize {
    layout.size().next_multiple_of(LARGE)
}

/// Maps zeros for this layout, at a multiple of [`LARGE`]; none where the kernel refuses.
fn map_zeros(layout: Layout) -> Option<NonNull<c_void>> {
    let (bytes, flags) = (mapped(layout), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    let all = bytes.checked_add(LARGE)?;
    // SAFETY: a new mapping, of which the part before and the part behind the wanted one are unmapped.
    let start = unsafe {
        let begin = libc::mmap(std::ptr::null_mut(), all, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if begin == libc::MAP_FAILED {
            return None;
        }
        let before = begin.addr().next_multiple_of(LARGE) - begin.addr();
        let start = begin.byte_add(before);
        if before > 0 {
            libc::munmap(begin, before);
        }
        if before < LARGE {
            libc::munmap(start.byte_add(bytes), LARGE - before);
        }
        start
    };
    advise(start.cast(), layout);
    NonNull::new(start)
}

/// Requests large pages; the kernel may refuse.
fn advise(start: *mut u8, layout: Layout) {
    #[cfg(target_os = "linux")]
    if layout.size() >= LARGE {
        // SAFETY: the advice changes only page sizes, and the range is one allocation.
        unsafe { libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, layout);
}

impl<T: Copy> Default for Table<T> {
    fn default() -> Self {
        Self { start: NonNull::dangling(), length: 0, capacity: 0, is_mapped: false }
    }
}

impl<T: Copy> Clone for Table<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        if self.length > 0 {
            copy.move_to(self.length);
            // SAFETY: the copy has space for as many elements, and those of this table were written.
            unsafe { copy.start.copy_from_nonoverlapping(self.start, self.length) };
            copy.length = self.length;
        }
        copy
    }
}

impl<T: Copy> Drop for Table<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: all elements below `length` were written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: all elements below `length` were written, and this is the only reference to the table.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Copy + std::fmt::Debug> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn a_table_is_a_vector(lengths in proptest::collection::vec((0..900_000_usize, any::<u64>()), 1..12)) {
            let (mut table, mut vector) = (Table::default(), Vec::new());
            for (nth, &(length, value)) in lengths.iter().enumerate() {
                if nth % 5 == 4 {
                    table.clear();
                    vector.clear();
                }
                table.resize(length, value);
                vector.resize(length, value);
                let more = [value; 70];
                table.extend(more[..nth * 7].iter().copied());
                vector.extend(&more[..nth * 7]);
                table.reserve(nth << 12);
                prop_assert!(table[..] == vector[..]);
                prop_assert!(table.clone()[..] == vector[..]);
                prop_assert!(vector.len() * 8 < LARGE || table.as_ptr().addr() % LARGE == 0);
                let mut zeros = Table::<u64>::zeros(length);
                prop_assert!(zeros.len() == length && zeros.iter().all(|zero| *zero == 0));
                zeros.extend([value; 2].into_iter());
                prop_assert!(zeros[length..] == [value; 2] && zeros[..length].iter().all(|zero| *zero == 0));
                if let Some(last) = table.last_mut() {
                    *last += 1;
                    *vector.last_mut().unwrap() += 1;
                }
            }
        }
    }
}
