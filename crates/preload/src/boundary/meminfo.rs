//! The amount of memory available, and that of the process: `/proc/meminfo` and `/proc/self/statm`.

use core::ffi::CStr;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::sys::{self, c};

/// Reads the beginning of the file at `path`; returns the number of bytes.
fn read_start(path: &CStr, text: &mut [u8]) -> Option<usize> {
    let fd = sys::open(path, c::O_RDONLY, 0).ok()?;
    let used = sys::read(fd, text);
    sys::close(fd);
    used.ok()
}

/// MemAvailable, bytes. Without /proc: memory that is free, which is less.
pub fn available() -> Option<usize> {
    listed_as_available().or_else(sys::free_bytes)
}

fn listed_as_available() -> Option<usize> {
    let mut text = [0u8; 256];
    let used = apart(|| read_start(c"/proc/meminfo", &mut text)).ok()?;
    let text = text.get(..used?)?;
    let name = b"MemAvailable:";
    let at = text.windows(name.len()).position(|window| window == name)?;
    let digits = text.get(at + name.len()..)?.iter().skip_while(|&&byte| byte == b' ');
    let kib = digits.take_while(|byte| byte.is_ascii_digit());
    Some(kib.fold(0usize, |value, &byte| value * 10 + usize::from(byte - b'0')) * 1024)
}

/// Whether all private writable memory counts against the kernel's limit on commitments, MAP_NORESERVE or not.
pub fn commits_all() -> bool {
    let mut text = [0u8; 4];
    let read = apart(|| read_start(c"/proc/sys/vm/overcommit_memory", &mut text));
    read.is_ok_and(|used| used.is_some()) && text.starts_with(b"2")
}

/// Bytes that the process has mapped.
pub fn mapped_bytes() -> Option<usize> {
    statm(0)
}

/// Bytes of the process that are in memory.
pub fn resident_bytes() -> Option<usize> {
    statm(1)
}

/// Number `column` of `/proc/self/statm`, in bytes.
fn statm(column: usize) -> Option<usize> {
    let mut text = [0u8; 64];
    let used = apart(|| read_start(c"/proc/self/statm", &mut text)).ok()?;
    let word = text.get(..used?)?.split(|byte| *byte == b' ').nth(column)?;
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0usize, |value, &byte| value * 10 + usize::from(byte - b'0')) * PAGE)
}
