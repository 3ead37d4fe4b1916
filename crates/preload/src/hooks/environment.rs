//! An environment without the guest, for programs that must not inherit the policy.

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::own::{Bytes, Fresh, Once};
use crate::boundary::sys::{self, Errno, c, task};
use crate::boundary::{libc, stack};
use crate::state::{child, own_stack, seccomp};

/// The variable that names the plan.
pub const PLAN: &[u8] = b"PAGELAB_PLAN=";
/// The variable that lists libraries to be loaded first.
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The variable with the number of seccomp filters that the launcher is under, if any.
pub const FILTERS: &[u8] = b"PAGELAB_FILTERS=";
/// How the name of the library's file begins: `libpagelab.so` as cargo builds it, `libpagelab.abi3.so` in a wheel.
const LIBRARY: &[u8] = b"libpagelab.";

/// The strings of an array that ends with a null pointer: the form in which a process receives them and exec takes
/// them.
#[derive(Clone, Copy)]
pub struct Strings<'a> {
    next: *const *const c_char,
    lifetime: PhantomData<&'a CStr>,
}

impl Strings<'_> {
    /// The strings of the array at `address`.
    ///
    /// # Safety
    /// `address` is 0, or that of such an array; the array and its strings live as long as this value says.
    pub const unsafe fn at(address: usize) -> Self {
        Strings { next: address as *const *const c_char, lifetime: PhantomData }
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a CStr;

    fn next(&mut self) -> Option<&'a CStr> {
        // SAFETY: null, or an entry of the array: the iteration stays at the null pointer.
        let entry = unsafe { self.next.as_ref() }?;
        if entry.is_null() {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        // SAFETY: an entry of the array is a terminated string.
        Some(unsafe { CStr::from_ptr(*entry) })
    }
}

/// Whether the kernel could read the environment at `envp`: an invalid pointer must give the program EFAULT, not crash
/// the library. (It runs on the caller's stack: a child between fork and exec is not adopted for it.)
pub fn is_readable(envp: usize) -> bool {
    let mut at = envp;
    while at != 0 {
        let mut pointers = [0u8; 16 * POINTER];
        let Ok(bytes @ POINTER..) = task::read_own(at, &mut pointers) else { return false };
        let read = pointers.get(..bytes).unwrap_or_default().as_chunks::<POINTER>().0;
        for pointer in read {
            match usize::from_ne_bytes(*pointer) {
                0 => return true,
                string if ends(string) => {}
                _ => return false,
            }
        }
        at += size_of_val(read);
    }
    true
}

/// Whether there is a terminated string at `at`.
fn ends(mut at: usize) -> bool {
    let mut bytes = [0u8; 192];
    loop {
        match task::read_own(at, &mut bytes) {
            Ok(0) | Err(_) => return false,
            Ok(read) if bytes.get(..read).unwrap_or_default().contains(&0) => return true,
            Ok(read) => at += read,
        }
    }
}

/// Paths that the next image needs to be governed, as they were given to this one.
static NEEDED: Once<[[u8; 512]; 2]> = Once::empty();

/// Remembers the library's path and the plan's. (Longer paths are not checked later.)
pub fn remember(given: Strings<'_>) {
    let mut paths = [[0; 512]; 2];
    for entry in given {
        let bytes = entry.to_bytes();
        let list = bytes.strip_prefix(PRELOAD).unwrap_or_default();
        let library = list.split(|&byte| byte == b':' || byte == b' ').find(|path| is_library(path));
        for (place, path) in paths.iter_mut().zip([library, bytes.strip_prefix(PLAN)]) {
            if let Some((path, room)) = path.and_then(|path| Some((path, place.get_mut(..path.len())?)))
                && path.len() < 512
            {
                room.copy_from_slice(path);
            }
        }
    }
    NEEDED.set(paths);
}

/// Whether the next image will find the library and the plan: the program may have changed its root, its user or its
/// mounts, or restricted the files that it may open.
pub fn is_within_reach() -> bool {
    // A child between fork and exec has one thread, and is not adopted for this.
    if libc::is_alone() {
        return all_needed(is_openable);
    }
    let beside = || own_stack::with_files(|| apart(|| all_needed(is_openable)));
    beside().unwrap_or_else(|_| all_needed(sys::is_readable))
}

/// Whether `open` finds all of the files that are known.
fn all_needed(open: fn(&CStr) -> Result<(), Errno>) -> bool {
    let paths = NEEDED.get();
    paths
        .into_iter()
        .flatten()
        .filter_map(|path| CStr::from_bytes_until_nul(path).ok())
        .all(|path| path.is_empty() || !matches!(open(path), Err(Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR)))
}

/// Whether the file can be opened for reading. Only an attempt shows it: access(2) asks neither Landlock nor the rules
/// of other security modules. Without a free descriptor, access(2) has to do.
fn is_openable(path: &CStr) -> Result<(), Errno> {
    match sys::open(path, c::O_RDONLY, 0) {
        Ok(fd) => {
            sys::close(fd);
            Ok(())
        }
        Err(Errno::EMFILE) => sys::is_readable(path),
        Err(errno) => Err(errno),
    }
}

/// A copy of an environment in memory of its own; given back when exec failed.
///
/// In a child of vfork the memory stays behind in the parent when exec succeeds, for the next such child.
pub struct Stripped {
    at: usize,
    _own: Option<Bytes>,
    _lent: Option<Lent>,
}

/// Memory that children of vfork copy their environments to, one after the other.
struct Lent(usize);

/// Such memory; 0: none yet. Each begins with two words: whether a child has it, which the kernel clears when the child is
/// gone, and its length.
static LENT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
/// Bytes of the two words, and what lies there for the alignment of the rest.
const HEAD: usize = 64;

impl Lent {
    /// Gets memory with room for `len` bytes, and the room. `None`: the caller is no child of vfork, or there is none.
    fn get(len: usize) -> Option<(Lent, &'static mut [u8])> {
        // A word of the program's (CLONE_CHILD_CLEARTID) must stay.
        if !child::is_guest() || task::word_cleared_when_gone() != Ok(0) {
            return None;
        }
        let (at, len) = LENT.iter().find_map(|place| Lent::free(place, len)).or_else(|| Lent::make(len))?;
        let _ = task::clear_when_gone(at);
        // SAFETY: the word says that this thread has the memory, until it is gone or gives it back.
        Some((Lent(at), unsafe { core::slice::from_raw_parts_mut((at + HEAD) as *mut u8, len) }))
    }

    fn free(place: &AtomicUsize, len: usize) -> Option<(usize, usize)> {
        let at = place.load(Ordering::Acquire);
        if at == 0 {
            return None;
        }
        // SAFETY: `make` put a mapping there, which is never unmapped, and nobody changes its length.
        let (taken, room) = unsafe { (&*(at as *const AtomicU32), *((at + POINTER) as *const usize)) };
        let is_mine = room >= len && taken.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        is_mine.then_some((at, room))
    }

    fn make(len: usize) -> Option<(usize, usize)> {
        let place = LENT.iter().find(|place| place.load(Ordering::Relaxed) == 0)?;
        let mut memory = Fresh::map((len + HEAD).next_multiple_of(16 * PAGE)).ok()?.into_bytes();
        let room = memory.all().len() - HEAD;
        let at = memory.all().as_ptr() as usize;
        // SAFETY: the mapping was just made, and nobody else knows of it.
        unsafe {
            (at as *mut u32).write(1);
            ((at + POINTER) as *mut usize).write(room);
        }
        place.compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        memory.into_room().keep();
        Some((at, room))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = task::clear_when_gone(0);
        // SAFETY: as in `free`.
        unsafe { &*(self.0 as *const AtomicU32) }.store(0, Ordering::Release);
    }
}

const POINTER: usize = size_of::<usize>();

impl Stripped {
    /// Copies `envp` without `PAGELAB_PLAN`, and without the library in `LD_PRELOAD`.
    pub fn new(envp: Strings<'_>) -> Result<Stripped, Errno> {
        let is_list = |entry: &CStr| entry.to_bytes().starts_with(PRELOAD);
        let table = (envp.count() + 1) * POINTER;
        let text = envp.filter(|entry| is_list(entry)).map(|entry| entry.to_bytes_with_nul().len()).sum::<usize>();
        let len = (table + text + 1).next_multiple_of(PAGE);
        let (mut own, mut lent) = (None, None);
        // Under the program's own seccomp filter, not even memory may be mapped.
        let room = match seccomp::is_raw() {
            true => {
                let at = stack::scratch(len).ok_or(Errno::ENOMEM)?;
                // SAFETY: `scratch` has given this part of the library's memory to this thread alone.
                unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) }
            }
            false => match Lent::get(len) {
                Some((memory, room)) => {
                    lent = Some(memory);
                    room
                }
                None => own.insert(Fresh::map(len)?.into_bytes()).all(),
            },
        };
        let at = room.as_ptr() as usize;
        fill(envp, room, table);
        Ok(Stripped { at, _own: own, _lent: lent })
    }

    /// The new environment.
    pub fn pointer(&self) -> usize {
        self.at
    }
}

/// Writes pointers to the kept strings of `envp` into the first `table` bytes of `room`, and changed strings behind
/// them.
fn fill(envp: Strings<'_>, room: &mut [u8], table: usize) {
    let Some((table, mut text)) = room.split_at_mut_checked(table) else { return };
    let mut places = table.as_chunks_mut::<POINTER>().0.iter_mut();
    let mut put = |pointer: usize| {
        if let Some(place) = places.next() {
            *place = pointer.to_ne_bytes();
        }
    };
    for entry in envp {
        let bytes = entry.to_bytes();
        if bytes.starts_with(PLAN) {
            continue;
        }
        let Some(list) = bytes.strip_prefix(PRELOAD) else {
            put(entry.as_ptr() as usize);
            continue;
        };
        if let Some(used) = without_library(list, text) {
            put(text.as_ptr() as usize);
            text = text.get_mut(used..).unwrap_or_default();
        }
    }
    // (Memory that was used before is not zero.)
    put(0);
}

fn is_library(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(LIBRARY))
}

/// Whether a value of `LD_PRELOAD` names the guest's library.
pub fn names_library(list: &[u8]) -> bool {
    list.split(|&byte| byte == b':' || byte == b' ').any(is_library)
}

/// Writes `LD_PRELOAD=` and `list` without the guest's library to `out`, terminated. Returns the bytes used; `None`:
/// nothing is left, or there is no room for it.
fn without_library(list: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut used = 0;
    let mut put = |bytes: &[u8]| {
        let room = out.get_mut(used..used + bytes.len())?;
        room.copy_from_slice(bytes);
        used += bytes.len();
        Some(())
    };
    put(PRELOAD)?;
    let items =
        list.split(|&byte| byte == b':' || byte == b' ').filter(|item| !item.is_empty() && !is_library(item));
    let mut kept = 0;
    for item in items {
        if kept > 0 {
            put(b":")?;
        }
        put(item)?;
        kept += 1;
    }
    put(b"\0")?;
    (kept > 0).then_some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(entries: &[&CStr]) -> Vec<String> {
        let mut pointers: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).collect();
        pointers.push(core::ptr::null());
        // SAFETY: a null-terminated array of strings.
        let stripped = Stripped::new(unsafe { Strings::at(pointers.as_ptr() as usize) }).unwrap();
        // SAFETY: `Stripped` has built such an array.
        let left = unsafe { Strings::at(stripped.pointer()) };
        left.map(|entry| entry.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn no_array_is_an_empty_one() {
        // SAFETY: 0 stands for an empty array.
        assert_eq!(unsafe { Strings::at(0) }.count(), 0);
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
