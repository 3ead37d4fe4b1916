//! An environment without the guest, for programs that must not inherit the policy.

use core::ffi::{CStr, c_char};

use crate::boundary::arch::PAGE;
use crate::boundary::stack;
use crate::boundary::sys::{self, Errno};
use crate::state::seccomp;

/// The variable that names the plan.
pub const PLAN: &[u8] = b"PAGELAB_PLAN=";
/// The variable that lists libraries to be loaded first.
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The variable that tells how many seccomp filters the launcher is under, if any.
pub const FILTERS: &[u8] = b"PAGELAB_FILTERS=";
/// How the library's file is called begins so: `libpagelab.so` as cargo builds it, `libpagelab.abi3.so` in a wheel.
const LIBRARY: &[u8] = b"libpagelab.";

/// A copy of an environment in memory of its own; unmapped again when exec failed.
///
/// In a child of vfork the mapping stays behind in the parent when exec succeeds: a page or two for each program started
/// that way.
pub struct Stripped {
    at: usize,
    len: usize,
    is_mapped: bool,
}

impl Stripped {
    /// Copies `envp` without `PAGELAB_PLAN`, and without the library in `LD_PRELOAD`.
    ///
    /// # Safety
    /// `envp` is null or a null-terminated array of strings.
    pub unsafe fn new(envp: usize) -> Result<Stripped, Errno> {
        let source = envp as *const *const c_char;
        // SAFETY: as the caller promises.
        let (count, longest) = unsafe { measure(source) };
        let table = (count + 1) * size_of::<usize>();
        let len = (table + longest + 1).next_multiple_of(PAGE);
        // Where the program has locked itself in, not even memory may be mapped.
        let (at, is_mapped) = match seccomp::is_raw() {
            true => (stack::scratch(len).ok_or(Errno::ENOMEM)?, false),
            false => (sys::mmap_own(len)?, true),
        };
        let stripped = Stripped { at, len, is_mapped };
        let (out, mut text) = (at as *mut *const c_char, (at + table) as *mut u8);
        let mut kept = 0;
        for index in 0..count {
            // SAFETY: `count` entries precede the null pointer; the strings are terminated.
            let entry = unsafe { CStr::from_ptr(*source.add(index)) };
            let bytes = entry.to_bytes();
            if bytes.starts_with(PLAN) {
                continue;
            }
            let mut pointer = entry.as_ptr();
            if let Some(list) = bytes.strip_prefix(PRELOAD) {
                // SAFETY: `text` has room for the longest entry and its NUL, and is used for LD_PRELOAD alone.
                let Some(end) = (unsafe { without_library(list, text) }) else { continue };
                pointer = text.cast();
                text = end;
            }
            // SAFETY: the table has room for `count` entries and a null pointer.
            unsafe { *out.add(kept) = pointer };
            kept += 1;
        }
        // SAFETY: as above. (Memory that was used before is not zero.)
        unsafe { *out.add(kept) = core::ptr::null() };
        Ok(stripped)
    }

    /// The new environment.
    pub fn pointer(&self) -> usize {
        self.at
    }
}

impl Drop for Stripped {
    fn drop(&mut self) {
        if !self.is_mapped {
            return;
        }
        // SAFETY: our own mapping, not used any more.
        let _ = unsafe { sys::munmap(self.at, self.len) };
    }
}

/// Number of entries, and the bytes of all LD_PRELOAD entries.
///
/// # Safety
/// As [`Stripped::new`].
unsafe fn measure(source: *const *const c_char) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    if source.is_null() {
        return (0, 0);
    }
    loop {
        // SAFETY: as the caller promises.
        let entry = unsafe { *source.add(count) };
        if entry.is_null() {
            return (count, bytes);
        }
        // SAFETY: as the caller promises.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if text.starts_with(PRELOAD) {
            bytes += text.len() + 1;
        }
        count += 1;
    }
}

fn is_library(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(LIBRARY))
}

/// Whether a value of `LD_PRELOAD` names the guest's library.
pub fn names_library(list: &[u8]) -> bool {
    list.split(|&byte| byte == b':' || byte == b' ').any(is_library)
}

/// Writes `LD_PRELOAD=` and `list` without the guest's library to `out`, terminated; `None` if nothing is left.
///
/// # Safety
/// `out` has room for `LD_PRELOAD=`, `list` and a NUL.
unsafe fn without_library(list: &[u8], out: *mut u8) -> Option<*mut u8> {
    let mut end = out;
    let mut put = |bytes: &[u8]| {
        // SAFETY: no more is written than was in the entry.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
            end = end.add(bytes.len());
        }
    };
    put(PRELOAD);
    let mut kept = 0;
    for item in list.split(|&byte| byte == b':' || byte == b' ') {
        if item.is_empty() || is_library(item) {
            continue;
        }
        if kept > 0 {
            put(b":");
        }
        put(item);
        kept += 1;
    }
    put(b"\0");
    (kept > 0).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(entries: &[&CStr]) -> Vec<String> {
        let mut pointers: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).collect();
        pointers.push(core::ptr::null());
        // SAFETY: a null-terminated array of strings.
        let stripped = unsafe { Stripped::new(pointers.as_ptr() as usize) }.unwrap();
        let table = stripped.pointer() as *const *const c_char;
        // SAFETY: as built by `Stripped`.
        let read = |index: usize| unsafe { *table.add(index) };
        (0..)
            .map(read)
            .take_while(|entry| !entry.is_null())
            // SAFETY: terminated strings.
            .map(|entry| unsafe { CStr::from_ptr(entry) }.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn only_the_guest_is_taken_out() {
        let left = strip(&[c"A=1", c"PAGELAB_PLAN=/run/x/plan", c"LD_PRELOAD=/a.so:/x/libpagelab.so /b.so", c"B="]);
        assert_eq!(left, ["A=1", "LD_PRELOAD=/a.so:/b.so", "B="]);
        assert_eq!(strip(&[c"LD_PRELOAD=/x/libpagelab.so", c"C=2"]), ["C=2"]);
        assert_eq!(strip(&[c"LD_PRELOAD=/x/pagelab/libpagelab.abi3.so", c"C=2"]), ["C=2"]);
        assert_eq!(strip(&[c"LD_PRELOAD=/libpagelab.d/b.so"]), ["LD_PRELOAD=/libpagelab.d/b.so"]);
        assert!(strip(&[]).is_empty());
    }
}
