//! userfaultfd(2) as functions: registering, waiting for faults, and the three answers to them.

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, c, task};

const API: usize = 0xc018_aa3f;
const REGISTER: usize = 0xc020_aa00;
const UNREGISTER: usize = 0x8010_aa01;
const WAKE: usize = 0x8010_aa02;
const COPY: usize = 0xc028_aa03;
const ZEROPAGE: usize = 0xc020_aa04;
const MOVE: usize = 0xc028_aa05;
/// Of /dev/userfaultfd.
const NEW: usize = 0xaa00;

const API_VERSION: u64 = 0xaa;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_MOVE: u64 = 1 << 16;
const MODE_MISSING: u64 = 1;
const MOVE_DONTWAKE: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

/// A userfaultfd, by number in some descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uffd(pub i32);

/// One message.
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
        (self.event == EVENT_PAGEFAULT).then_some((self.address as usize, self.thread))
    }
}

/// Action after a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Wake threads that wait for the target.
    Wake,
    /// Wake nobody.
    Wait,
}

#[repr(C)]
struct Move {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

impl Uffd {
    /// A new one that can move pages and answers faults of the kernel's as well: by the system call, or through
    /// /dev/userfaultfd.
    pub fn open() -> Result<Uffd> {
        let fd = task::userfaultfd().or_else(|errno| by_device().map_err(|_| errno))?;
        Uffd(fd).agreed()
    }

    /// A new one made by `device`, an open /dev/userfaultfd.
    pub fn of_device(device: i32) -> Result<Uffd> {
        // SAFETY: the request takes flags by value and makes a new descriptor.
        let fd = unsafe { sys::ioctl(device, NEW, c::O_CLOEXEC as usize) }?;
        Uffd(fd as i32).agreed()
    }

    /// Agrees on the features; closed where they cannot be had.
    fn agreed(self) -> Result<Uffd> {
        match self.agree() {
            Ok(()) => Ok(self),
            Err(errno) => {
                sys::close(self.0);
                Err(errno)
            }
        }
    }

    fn agree(self) -> Result<()> {
        let mut api = [API_VERSION, FEATURE_MOVE | FEATURE_THREAD_ID, 0];
        // SAFETY: `struct uffdio_api` has three words.
        unsafe { sys::ioctl(self.0, API, api.as_mut_ptr() as usize) }.map(drop)
    }

    /// Registers `span` for missing pages.
    pub fn register(self, span: Span) -> Result<()> {
        let mut argument = [span.start as u64, span.len() as u64, MODE_MISSING, 0];
        // SAFETY: `struct uffdio_register` has four words; contents stay as they are.
        unsafe { sys::ioctl(self.0, REGISTER, argument.as_mut_ptr() as usize) }.map(drop)
    }

    /// Undoes [`Uffd::register`]; threads that wait there go on.
    pub fn unregister(self, span: Span) -> Result<()> {
        let argument = [span.start as u64, span.len() as u64];
        // SAFETY: `struct uffdio_range` has two words.
        unsafe { sys::ioctl(self.0, UNREGISTER, argument.as_ptr() as usize) }.map(drop)
    }

    /// Wakes threads that wait for pages of `span`.
    pub fn wake(self, span: Span) -> Result<()> {
        let argument = [span.start as u64, span.len() as u64];
        // SAFETY: as above.
        unsafe { sys::ioctl(self.0, WAKE, argument.as_ptr() as usize) }.map(drop)
    }

    /// Maps the shared zero page at `span`, and wakes.
    pub fn zero(self, span: Span) -> Result<()> {
        let mut argument = [span.start as u64, span.len() as u64, 0, 0];
        // SAFETY: `struct uffdio_zeropage` has four words; only missing pages are filled.
        unsafe { sys::ioctl(self.0, ZEROPAGE, argument.as_mut_ptr() as usize) }.map(drop)
    }

    /// Fills `to` with a copy of what is at `from`, on frames of the kernel's choice, and wakes.
    pub fn copy(self, from: usize, to: Span) -> Result<()> {
        let mut argument = [to.start as u64, from as u64, to.len() as u64, 0, 0];
        // SAFETY: `struct uffdio_copy` has five words; only missing pages are filled.
        unsafe { sys::ioctl(self.0, COPY, argument.as_mut_ptr() as usize) }.map(drop)
    }

    /// Moves the pages of `[from, from + to.len())` to `to`, in order: the bytes moved, and the error that ended it early.
    ///
    /// # Safety
    /// Nobody may use the pages at `from` any more; what is there afterwards is nothing.
    pub unsafe fn shift(self, from: usize, to: Span, then: Then) -> (usize, Option<Errno>) {
        let mode = if then == Then::Wait { MOVE_DONTWAKE } else { 0 };
        let len = to.len() as u64;
        let mut argument = Move { to: to.start as u64, from: from as u64, len, mode, moved: 0 };
        // SAFETY: the argument is as the request wants it; the caller answers for the pages.
        let result = unsafe { sys::ioctl(self.0, MOVE, &raw mut argument as usize) };
        let moved = usize::try_from(argument.moved).unwrap_or(0);
        (moved, result.err())
    }

    /// Waits for messages; how many there are.
    pub fn wait(self, into: &mut [Message]) -> Result<usize> {
        let bytes = size_of_val(into);
        // SAFETY: any bytes make messages.
        let raw = unsafe { core::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), bytes) };
        sys::read(self.0, raw).map(|used| used / size_of::<Message>())
    }
}

fn by_device() -> Result<i32> {
    let device = sys::open(c"/dev/userfaultfd", c::O_RDWR, 0)?;
    // SAFETY: the request takes flags by value and makes a new descriptor.
    let made = unsafe { sys::ioctl(device, NEW, c::O_CLOEXEC as usize) };
    sys::close(device);
    made.map(|fd| fd as i32)
}
