//! Definitions of system calls: a table lists the arguments of each call; their types say which memory the kernel
//! accesses.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;

use linux_raw_sys::{errno, general};

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => { $(pub const $name: Errno = Errno(errno::$name as i32);)* };
}

#[allow(missing_docs, reason = "the names are the kernel's")]
impl Errno {
    errnos! { EPERM ENOENT ESRCH EINTR EBADF EAGAIN ENOMEM EFAULT EACCES EBUSY EEXIST EXDEV ENOTDIR EINVAL EMFILE ENOTTY EFBIG }
    errnos! { ENOSPC EPIPE EOPNOTSUPP ERANGE E2BIG }
}

/// Result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// The six argument words of a system call.
#[derive(Default)]
pub struct Words {
    words: [usize; 6],
    filled: usize,
}

impl Words {
    #[inline(always)]
    fn push(&mut self, word: usize) {
        if let Some(place) = self.words.get_mut(self.filled) {
            *place = word;
        }
        self.filled += 1;
    }

    /// Adds the next argument.
    #[inline(always)]
    pub fn with(mut self, argument: impl Argument) -> Words {
        argument.put(&mut self);
        self
    }

    /// As the kernel takes them.
    #[inline(always)]
    pub fn done(self) -> [usize; 6] {
        self.words
    }
}

/// An argument of a system call.
///
/// # Safety
/// It becomes numbers, or the address of memory that stays valid while the argument is borrowed; the kernel may write
/// there only if the borrow is exclusive or the type atomic. A slice becomes two words, its address and its length, and
/// its elements are bytes.
pub unsafe trait Argument {
    /// Adds its words.
    fn put(self, words: &mut Words);
}

macro_rules! numbers {
    ($($type:ty)*) => { $(
        // SAFETY: a number lends no memory.
        unsafe impl Argument for $type {
            #[inline(always)]
            fn put(self, words: &mut Words) {
                words.push(self as usize);
            }
        }
    )* };
}

numbers! { bool i32 u32 i64 usize }

// SAFETY: the string ends with a NUL, and is only read.
unsafe impl Argument for &CStr {
    #[inline(always)]
    fn put(self, words: &mut Words) {
        words.push(self.as_ptr() as usize);
    }
}

// SAFETY: address and length of one slice, which is only read.
unsafe impl Argument for &[u8] {
    #[inline(always)]
    fn put(self, words: &mut Words) {
        words.push(self.as_ptr() as usize);
        words.push(self.len());
    }
}

// SAFETY: address and length of one slice, to which any bytes may be written.
unsafe impl Argument for &mut [u8] {
    #[inline(always)]
    fn put(self, words: &mut Words) {
        words.push(self.as_mut_ptr() as usize);
        words.push(self.len());
    }
}

// SAFETY: an aligned integer that others may change at any time.
unsafe impl Argument for &AtomicU32 {
    #[inline(always)]
    fn put(self, words: &mut Words) {
        words.push(self.as_ptr() as usize);
    }
}

/// A structure or array as the kernel has it.
///
/// # Safety
/// Any bytes are a valid value of it.
pub unsafe trait Plain: Sized {
    /// A value of zero bytes, until a call fills it.
    #[inline(always)]
    fn zeroed() -> Self {
        // SAFETY: any bytes are a valid value, so zeros are.
        unsafe { core::mem::zeroed() }
    }

    /// The bytes of several values.
    #[inline(always)]
    fn bytes_mut(all: &mut [Self]) -> &mut [u8] {
        let bytes = size_of_val(all);
        // SAFETY: the slice covers the same memory, and any bytes may be written to it.
        unsafe { core::slice::from_raw_parts_mut(all.as_mut_ptr().cast(), bytes) }
    }
}

// SAFETY: any bytes are a value of this number type.
unsafe impl Plain for u32 {}
// SAFETY: any bytes are a value of this number type.
unsafe impl Plain for u64 {}
// SAFETY: any bytes are a value of this number type.
unsafe impl Plain for i32 {}
// SAFETY: any bytes are a value of this number type.
unsafe impl Plain for usize {}
// SAFETY: any bytes are values of its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for general::stat {}
// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for general::timespec {}
// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for general::rlimit64 {}

// SAFETY: the address of one value, which is only read. The table answers for its size.
unsafe impl<T: Plain> Argument for &T {
    #[inline(always)]
    fn put(self, words: &mut Words) {
        words.push(self as *const T as usize);
    }
}

// SAFETY: the address of one value, to which any bytes may be written. The table answers for its size.
unsafe impl<T: Plain> Argument for &mut T {
    #[inline(always)]
    fn put(self, words: &mut Words) {
        words.push(self as *mut T as usize);
    }
}

/// The result type of a call.
pub trait Answer {
    /// Converts the kernel's word, which is not an error.
    fn of(word: usize) -> Self;
}

impl Answer for () {
    #[inline(always)]
    fn of(_: usize) {}
}

impl Answer for usize {
    #[inline(always)]
    fn of(word: usize) -> usize {
        word
    }
}

impl Answer for i32 {
    #[inline(always)]
    fn of(word: usize) -> i32 {
        word as i32
    }
}

impl Answer for u32 {
    #[inline(always)]
    fn of(word: usize) -> u32 {
        word as u32
    }
}

/// Converts the kernel's word into a result: `-4095..0` is a negated errno.
#[inline(always)]
pub fn check<T: Answer>(word: isize) -> Result<T> {
    if (-4095..0).contains(&word) { Err(Errno(-word as i32)) } else { Ok(T::of(word as usize)) }
}

/// Functions that are one system call each: `fn name(arguments) -> answer { number; words… }`.
/// Each line promises that the call takes these words in this order, and that it accesses no memory but that which the
/// types of the words lend to it, each as large as the call wants. A line that is not `unsafe` also promises that the
/// call takes no memory away and changes nothing that Rust relies on, whatever its numbers are.
macro_rules! calls {
    ($($(#[$about:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty
        { $number:expr $(; $($word:expr),+)? })*) => { $(
        $(#[$about])*
        $vis fn $name($($arg: $type),*) -> $crate::boundary::sys::call::Result<$answer> {
            let words = $crate::boundary::sys::call::Words::default()$($(.with($word))+)?.done();
            // SAFETY: the table's line promises it; memory that its types lend is borrowed until the call has returned.
            $crate::boundary::sys::call::check(unsafe { $crate::boundary::arch::syscall6($number, words) })
        }
    )* };
    (unsafe: $($(#[$about:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty
        { $number:expr $(; $($word:expr),+)? })*) => { $(
        $(#[$about])*
        $vis unsafe fn $name($($arg: $type),*) -> $crate::boundary::sys::call::Result<$answer> {
            let words = $crate::boundary::sys::call::Words::default()$($(.with($word))+)?.done();
            // SAFETY: the table's line promises it; the caller answers for the memory that the numbers name.
            $crate::boundary::sys::call::check(unsafe { $crate::boundary::arch::syscall6($number, words) })
        }
    )* };
}
pub(crate) use calls;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_the_words_that_the_kernel_takes() {
        let (text, word, mut bytes) = (c"x", 7_u64, [0_u8; 3]);
        let (address, room) = (&raw const word as usize, bytes.as_mut_ptr() as usize);
        let words = Words::default().with(-1_i32).with(text).with(&word).with(&mut bytes[..]).with(true);
        assert_eq!(words.done(), [usize::MAX, text.as_ptr() as usize, address, room, 3, 1]);
    }

    #[test]
    fn answers_below_4096_from_the_top_are_errors() {
        assert_eq!(check::<usize>(-4095), Err(Errno(4095)));
        assert_eq!(check::<usize>(-4096), Ok(-4096_isize as usize));
        assert_eq!(check::<i32>(3), Ok(3));
    }
}
