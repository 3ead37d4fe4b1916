//! The library's own memory: mapped for the library alone, and unmapped when the value is dropped.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result, c};

/// Stores a value that a forked child needs even if the fork met this thread in the middle of a change: before system
/// calls and such stores that follow in the program text, and after those before. (The compiler may delay others.)
pub fn store_for_forks<T: Copy>(place: &mut T, value: T) {
    // SAFETY: a valid place, borrowed exclusively.
    unsafe { core::ptr::from_mut(place).write_volatile(value) }
}

/// Addresses that belong to the library alone.
#[derive(Debug)]
pub struct Room(Span);

impl Room {
    /// Its addresses.
    pub const fn span(&self) -> Span {
        self.0
    }

    /// Gives its first `bytes` another protection.
    pub fn protect(&mut self, bytes: usize, prot: i32) -> Result<()> {
        // SAFETY: no reference into it exists: code that refers to such memory holds it as `Bytes`, or has kept it.
        unsafe { sys::mprotect(self.0.start, bytes.min(self.0.len()), prot) }
    }

    /// Forked children do not get this memory. A child uses none of its parent's memory there before `state/child.rs`
    /// has reset the references to it.
    pub fn hide_from_children(&self) -> Result<()> {
        // SAFETY: the advice changes nothing in this process; a child resets its references first, as described above.
        unsafe { sys::madvise(self.0.start, self.0.len(), c::MADV_DONTFORK) }
    }

    /// Forked children find zeros in it.
    pub fn clear_in_children(&self) -> Result<()> {
        // SAFETY: the advice changes nothing in this process; in children the memory is zero.
        unsafe { sys::madvise(self.0.start, self.0.len(), c::MADV_WIPEONFORK) }
    }

    /// Moves it to `target`, where it replaces the present mapping; on failure it stays where it is.
    ///
    /// # Safety
    /// Code that uses the memory at `target` must expect its new contents.
    pub unsafe fn take_the_place_of(self, target: usize) -> Result<()> {
        let (span, flags) = (self.0, c::MREMAP_MAYMOVE | c::MREMAP_FIXED);
        // SAFETY: nobody uses the memory at its old address; the caller answers for the target.
        unsafe { sys::mremap(span.start, span.len(), span.len(), flags, target) }?;
        self.keep();
        Ok(())
    }

    /// Keeps the memory mapped for good; returns its addresses.
    pub fn keep(self) -> Span {
        let span = self.0;
        core::mem::forget(self);
        span
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: nobody else knows of this memory, and nothing refers to it any more.
        let _ = unsafe { sys::munmap(self.0.start, self.0.len()) };
    }
}

/// The library's own memory, readable and writable, and still zero.
#[derive(Debug)]
pub struct Fresh(Room);

/// The library's own memory, readable and writable.
#[derive(Debug)]
pub struct Bytes(Room);

/// Types of which zero bytes are a value.
///
/// # Safety
/// Zero bytes are a valid value of the type.
pub unsafe trait Zeroed {}

// SAFETY: zero is a value of this number type.
unsafe impl Zeroed for u8 {}
// SAFETY: zero is a value of this number type.
unsafe impl Zeroed for u32 {}
// SAFETY: zero is a value of this number type.
unsafe impl Zeroed for u64 {}
// SAFETY: zero is a value of this number type.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: zero is a value of this number type.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: zero bytes are the null pointer.
unsafe impl<T> Zeroed for AtomicPtr<T> {}
// SAFETY: zero bytes are a value of each element.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

impl Fresh {
    /// Maps at least `len` bytes, in whole pages.
    pub fn map(len: usize) -> Result<Fresh> {
        Fresh::with(len, sys::mmap_own)
    }

    /// As [`Fresh::map`], in base pages only: for a table in which few places are touched.
    pub fn map_sparse(len: usize) -> Result<Fresh> {
        Fresh::with(len, sys::mmap_sparse)
    }

    /// As [`Fresh::map`]; the kernel guarantees memory for all of it.
    pub fn map_reserved(len: usize) -> Result<Fresh> {
        Fresh::with(len, |len| sys::map_anywhere(len, c::PROT_RW, 0))
    }

    fn with(len: usize, map: fn(usize) -> Result<usize>) -> Result<Fresh> {
        let len = len.next_multiple_of(PAGE);
        map(len).map(|at| Fresh(Room(Span::new(at, at + len))))
    }

    /// Its addresses.
    pub fn room(&self) -> &Room {
        &self.0
    }

    /// Gives up access to the contents; only the addresses remain.
    pub fn into_room(self) -> Room {
        self.0
    }

    /// Makes the contents accessible.
    pub fn into_bytes(self) -> Bytes {
        Bytes(self.0)
    }

    /// Keeps the memory for good, as a slice of zero values: as many as fit, at most `most`.
    pub fn into_slice<T: Zeroed>(self, most: usize) -> &'static mut [T] {
        const { assert!(align_of::<T>() <= PAGE && size_of::<T>() > 0) };
        let span = self.0.keep();
        let count = most.min(span.len() / size_of::<T>());
        // SAFETY: the memory is zeroed, of that size, aligned to pages, never unmapped, and known to nobody else.
        unsafe { core::slice::from_raw_parts_mut(span.start as *mut T, count) }
    }
}

impl Bytes {
    /// All of its bytes.
    pub fn all(&mut self) -> &mut [u8] {
        // SAFETY: the memory is readable and writable, and borrowed from the only value that knows of it.
        unsafe { core::slice::from_raw_parts_mut(self.0.0.start as *mut u8, self.0.0.len()) }
    }

    /// Gives up access to the contents; only the addresses remain.
    pub fn into_room(self) -> Room {
        self.0
    }
}

/// A place for a value that is set once, and that all threads read from then on.
pub struct Once<T> {
    /// [`Once::EMPTY`], [`Once::BUSY`] or [`Once::SET`].
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: one thread writes the value, the one that finds the state EMPTY; others refer to it once the state is SET.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T: Copy> Once<T> {
    const EMPTY: u8 = 0;
    /// A thread is writing.
    const BUSY: u8 = 1;
    const SET: u8 = 2;

    /// A place without a value.
    pub const fn empty() -> Once<T> {
        Once { state: AtomicU8::new(Self::EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it was set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the value was written before the state was SET, and is not written any more.
        (self.state.load(Ordering::Acquire) == Self::SET).then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Sets the value; the first one stays.
    pub fn set(&self, value: T) {
        if self.state.compare_exchange(Self::EMPTY, Self::BUSY, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // SAFETY: no other thread comes here, and nobody reads before the state is SET.
            unsafe { (*self.value.get()).write(value) };
            self.state.store(Self::SET, Ordering::Release);
        }
    }
}

/// A place for a value that lives as long as the process, and that all threads share.
#[derive(Debug)]
pub struct Published<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Published<T> {
    /// A place without a value.
    pub const fn none() -> Published<T> {
        Published(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The value that was published last.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a reference from `set`, or zeroed memory of that size that stays mapped (`set_first_with`).
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes a value, or withdraws the published one.
    pub fn set(&self, value: Option<&'static T>) {
        self.0.store(
            value.map_or(core::ptr::null_mut(), |value| core::ptr::from_ref(value).cast_mut()),
            Ordering::Release,
        );
    }

    /// Publishes `memory`, which contains zeros, unless another thread was faster: then `memory` is unmapped. Returns
    /// the published value.
    pub fn set_first(&self, memory: Fresh) -> Option<&'static T>
    where
        T: Zeroed,
    {
        self.set_first_with(memory, |_| {})
    }

    /// As [`Published::set_first`]; `prepare` changes the zeros before other threads can see them.
    pub fn set_first_with(&self, memory: Fresh, prepare: impl FnOnce(&mut T)) -> Option<&'static T>
    where
        T: Zeroed,
    {
        const { assert!(align_of::<T>() <= PAGE) };
        let room = memory.into_room();
        if room.span().len() < size_of::<T>() {
            return None;
        }
        let value = room.span().start as *mut T;
        // SAFETY: zeroed memory of the value's size, which nobody else knows yet.
        prepare(unsafe { &mut *value });
        if self.0.compare_exchange(core::ptr::null_mut(), value, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            room.keep();
        }
        self.get()
    }
}

// SAFETY: zero bytes are the null pointer: nothing is published.
unsafe impl<T> Zeroed for Published<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::sys::Errno;

    /// Runs a test about unmapped addresses in a process of one thread. In a process of several threads, another test
    /// may have mapped the same addresses meanwhile.
    fn alone(test: fn()) {
        if std::env::args().any(|argument| argument == "--exact") {
            return test();
        }
        let thread = std::thread::current();
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let run = again.args(["--exact", thread.name().unwrap(), "--test-threads=1"]).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn own_memory_is_zero_and_goes_when_it_is_dropped() {
        alone(is_zero_and_goes_when_it_is_dropped);
    }

    fn is_zero_and_goes_when_it_is_dropped() {
        let fresh = Fresh::map(PAGE + 1).unwrap();
        let span = fresh.room().span();
        let mut bytes = fresh.into_bytes();
        assert_eq!(span.len(), 2 * PAGE);
        assert!(bytes.all().iter().all(|&byte| byte == 0));
        bytes.all()[PAGE] = 7;
        drop(bytes);
        assert_eq!(sys::is_mapped(span.start, span.len()), Err(Errno::ENOMEM));
    }

    #[test]
    fn kept_memory_stays() {
        let words = Fresh::map(1).unwrap().into_slice::<u64>(usize::MAX);
        assert_eq!(words.len(), PAGE / 8);
        words[0] = 3;
        assert_eq!(sys::is_mapped(words.as_ptr() as usize, PAGE), Ok(()));
        assert_eq!(Fresh::map(PAGE).unwrap().into_slice::<u64>(2).len(), 2);
    }

    #[test]
    fn memory_takes_the_place_of_other_memory() {
        alone(takes_the_place_of_other_memory);
    }

    fn takes_the_place_of_other_memory() {
        let target = Fresh::map(PAGE).unwrap().into_room().keep();
        let mut bytes = Fresh::map_reserved(PAGE).unwrap().into_bytes();
        bytes.all().fill(9);
        let room = bytes.into_room();
        let from = room.span();
        // SAFETY: the test has mapped the memory at the target, and nothing else uses it.
        unsafe { room.take_the_place_of(target.start) }.unwrap();
        assert_eq!(sys::is_mapped(from.start, PAGE), Err(Errno::ENOMEM));
        // SAFETY: the byte lies in the memory that was moved there.
        assert_eq!(unsafe { core::ptr::read((target.end - 1) as *const u8) }, 9);
    }

    #[test]
    fn of_threads_that_set_a_value_one_is_heard() {
        static PLACE: Once<[u64; 64]> = Once::empty();
        assert!(PLACE.get().is_none());
        let set = |number: u64| {
            PLACE.set([number; 64]);
            PLACE.get().copied()
        };
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=4).map(|number| scope.spawn(move || set(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let value = *PLACE.get().unwrap();
        assert!(value.iter().all(|word| *word == value[0]) && (1..=4).contains(&value[0]));
        // A thread that came while another was writing has seen no value.
        assert!(seen.iter().flatten().all(|found| *found == value) && seen.contains(&Some(value)));
        assert_eq!(set(9), Some(value));
    }

    #[test]
    fn the_first_value_is_published_once() {
        alone(is_published_once);
    }

    fn is_published_once() {
        static PLACE: Published<AtomicU32> = Published::none();
        static OTHER: AtomicU32 = AtomicU32::new(2);
        let place = || PLACE.get().map(|value| value.load(Ordering::Relaxed));
        assert_eq!(place(), None);
        PLACE.set_first(Fresh::map(PAGE).unwrap()).unwrap().store(1, Ordering::Relaxed);
        let second = Fresh::map(PAGE).unwrap();
        let span = second.room().span();
        assert_eq!(PLACE.set_first_with(second, |word| *word.get_mut() = 3).unwrap().load(Ordering::Relaxed), 1);
        assert_eq!(sys::is_mapped(span.start, PAGE), Err(Errno::ENOMEM));
        PLACE.set(Some(&OTHER));
        assert_eq!(place(), Some(2));
        PLACE.set(None);
        assert_eq!(place(), None);
        PLACE.set_first_with(Fresh::map(PAGE).unwrap(), |word| *word.get_mut() = 4);
        assert_eq!(place(), Some(4));
    }
}
