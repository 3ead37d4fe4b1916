//! userfaultfd(2) as functions: registration, waiting for faults, and the three answers to them.

use linux_raw_sys::general::{
    UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_MOVE, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_THREAD_ID,
    UFFD_FEATURE_WP_HUGETLBFS_SHMEM, UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP,
};

use crate::boundary::arch::nr;
use crate::boundary::span::Span;
use crate::boundary::sys::call::{Plain, calls};
use crate::boundary::sys::{self, Errno, Result, c, task};

const API: u32 = 0xc018_aa3f;
const REGISTER: u32 = 0xc020_aa00;
const UNREGISTER: u32 = 0x8010_aa01;
const WAKE: u32 = 0x8010_aa02;
const COPY: u32 = 0xc028_aa03;
const ZEROPAGE: u32 = 0xc020_aa04;
const MOVE: u32 = 0xc028_aa05;
const WRITEPROTECT: u32 = 0xc018_aa06;
/// Request of /dev/userfaultfd that makes a userfaultfd.
const NEW: u32 = 0xaa00;

/// `UFFDIO_MOVE_MODE_DONTWAKE`.
const MOVE_DONTWAKE: u64 = 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECT: u64 = 1;
const API_VERSION: u64 = 0xaa;
const FEATURES: u64 = (UFFD_FEATURE_MOVE | UFFD_FEATURE_THREAD_ID) as u64;

calls! {
    // `struct uffdio_api`.
    fn agree(fd: i32, argument: &mut [u64; 3]) -> () { nr::IOCTL; fd, API, argument }

    // `struct uffdio_register`; contents stay as they are.
    fn register(fd: i32, argument: &mut [u64; 4]) -> () { nr::IOCTL; fd, REGISTER, argument }

    // `struct uffdio_range`.
    fn unregister(fd: i32, argument: &[u64; 2]) -> () { nr::IOCTL; fd, UNREGISTER, argument }

    // `struct uffdio_range`.
    fn wake(fd: i32, argument: &[u64; 2]) -> () { nr::IOCTL; fd, WAKE, argument }

    // `struct uffdio_zeropage`; only missing pages are filled.
    fn zero(fd: i32, argument: &mut [u64; 4]) -> () { nr::IOCTL; fd, ZEROPAGE, argument }

    // `struct uffdio_copy`; only missing pages are filled.
    fn copy(fd: i32, argument: &mut [u64; 5]) -> () { nr::IOCTL; fd, COPY, argument }

    // `struct uffdio_writeprotect`.
    fn write_protect(fd: i32, argument: &mut [u64; 3]) -> () { nr::IOCTL; fd, WRITEPROTECT, argument }

    // Flags by value; makes a new descriptor.
    fn new_of(device: i32, flags: i32) -> i32 { nr::IOCTL; device, NEW, flags }
}

calls! { unsafe:
    // `struct uffdio_move`, whose last word has a sign.
    fn shift(fd: i32, argument: &mut [u64; 5]) -> () { nr::IOCTL; fd, MOVE, argument }
}

/// A userfaultfd, by its number in some descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uffd(pub i32);

/// One message of a userfaultfd.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    padding: u32,
}

impl Message {
    /// Address and thread of a page fault.
    pub fn fault(&self) -> Option<(usize, u32)> {
        (u32::from(self.event) == UFFD_EVENT_PAGEFAULT).then_some((self.address as usize, self.thread))
    }
}

// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for Message {}

/// Action after a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Wake threads that wait for the target.
    Wake,
    /// Wake nobody.
    Wait,
}

impl Uffd {
    /// Makes one that can move pages and also reports faults of the kernel: by the system call, or through
    /// /dev/userfaultfd.
    pub fn open() -> Result<Uffd> {
        let fd = task::userfaultfd(0).or_else(|errno| by_device().map_err(|_| errno))?;
        Uffd(fd).agreed(FEATURES)
    }

    /// Makes one that keeps writes waiting (Linux 5.7). Without any right it does so for the program's own writes only;
    /// the kernel's fail: for instance into memory that a call fills.
    pub fn of_writes() -> Result<Uffd> {
        let fd =
            task::userfaultfd(0).or_else(|_| by_device()).or_else(|_| task::userfaultfd(UFFD_USER_MODE_ONLY))?;
        Uffd(fd).agreed(UFFD_FEATURE_PAGEFAULT_FLAG_WP.into())
    }

    /// As [`Uffd::of_writes`], also for reserved pages (Linux 5.19), and only if writes of the kernel wait as well.
    pub fn of_all_writes() -> Result<Uffd> {
        let fd = task::userfaultfd(0).or_else(|errno| by_device().map_err(|_| errno))?;
        Uffd(fd).agreed((UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM).into())
    }

    /// Makes one by `device`, an open /dev/userfaultfd.
    pub fn of_device(device: i32) -> Result<Uffd> {
        Uffd(new_of(device, c::O_CLOEXEC)?).agreed(FEATURES)
    }

    /// Agrees with the kernel on the features; closes the descriptor if they do not exist.
    fn agreed(self, features: u64) -> Result<Uffd> {
        match agree(self.0, &mut [API_VERSION, features, 0]) {
            Ok(()) => Ok(self),
            Err(errno) => {
                sys::close(self.0);
                Err(errno)
            }
        }
    }

    /// Registers `span` for missing pages.
    pub fn register(self, span: Span) -> Result<()> {
        register(self.0, &mut [span.start as u64, span.len() as u64, UFFDIO_REGISTER_MODE_MISSING.into(), 0])
    }

    /// Registers `span` for writes, and keeps writes waiting from now on.
    pub fn hold_writes(self, span: Span) -> Result<()> {
        let (start, len) = (span.start as u64, span.len() as u64);
        register(self.0, &mut [start, len, UFFDIO_REGISTER_MODE_WP.into(), 0])?;
        write_protect(self.0, &mut [start, len, PROTECT])
    }

    /// Undoes [`Uffd::hold_writes`], also where that failed halfway.
    pub fn let_writes(self, span: Span) {
        let (start, len) = (span.start as u64, span.len() as u64);
        // A range that is not registered is not protected either; and closing wakes every thread.
        let _ = write_protect(self.0, &mut [start, len, 0]);
        let _ = self.unregister(span);
    }

    /// Undoes [`Uffd::register`]; threads that wait there continue.
    pub fn unregister(self, span: Span) -> Result<()> {
        unregister(self.0, &[span.start as u64, span.len() as u64])
    }

    /// Wakes threads that wait for pages of `span`.
    pub fn wake(self, span: Span) -> Result<()> {
        wake(self.0, &[span.start as u64, span.len() as u64])
    }

    /// Maps the shared zero page at `span`, and wakes its threads.
    pub fn zero(self, span: Span) -> Result<()> {
        zero(self.0, &mut [span.start as u64, span.len() as u64, 0, 0])
    }

    /// Fills `to` with a copy of the contents at `from`, on frames of the kernel's choice, and wakes its threads.
    pub fn copy(self, from: usize, to: Span) -> Result<()> {
        copy(self.0, &mut [to.start as u64, from as u64, to.len() as u64, 0, 0])
    }

    /// Moves the pages of `[from, from + to.len())` to `to`, in order. Returns the bytes moved, and the error that
    /// ended it early.
    ///
    /// # Safety
    /// Nobody may use the pages at `from` any more; afterwards they are missing.
    pub unsafe fn shift(self, from: usize, to: Span, then: Then) -> (usize, Option<Errno>) {
        let mode = if then == Then::Wait { MOVE_DONTWAKE } else { 0 };
        let mut argument = [to.start as u64, from as u64, to.len() as u64, mode, 0];
        // SAFETY: the caller answers for the pages.
        let result = unsafe { shift(self.0, &mut argument) };
        let [.., moved] = argument;
        (usize::try_from(moved as i64).unwrap_or(0), result.err())
    }

    /// Waits for messages; returns how many there are.
    pub fn wait(self, into: &mut [Message]) -> Result<usize> {
        sys::read(self.0, Plain::bytes_mut(into)).map(|used| used / size_of::<Message>())
    }
}

fn by_device() -> Result<i32> {
    let device = sys::open(c"/dev/userfaultfd", c::O_RDWR, 0)?;
    let made = new_of(device, c::O_CLOEXEC);
    sys::close(device);
    made
}
