//! The detoured functions, grouped by purpose.

use core::ffi::CStr;

use crate::boundary::arch::nr;
use crate::hooks::entry;
use crate::start::detour::{Shape, Wanted};

pub fn wanted(name: &'static CStr, number: u32, target: usize) -> Wanted {
    Wanted { name, shape: Shape::Syscall(number), target, optional: false }
}

pub fn wanted_memory() -> [Wanted; 7] {
    let pkey = wanted(c"pkey_mprotect", nr::PKEY_MPROTECT, entry::pkey_mprotect as *const () as usize);
    [
        wanted(c"mmap", nr::MMAP, entry::mmap as *const () as usize),
        wanted(c"mmap64", nr::MMAP, entry::mmap as *const () as usize),
        wanted(c"munmap", nr::MUNMAP, entry::munmap as *const () as usize),
        wanted(c"mremap", nr::MREMAP, entry::mremap as *const () as usize),
        wanted(c"mprotect", nr::MPROTECT, entry::mprotect as *const () as usize),
        wanted(c"madvise", nr::MADVISE, entry::madvise as *const () as usize),
        Wanted { optional: true, ..pkey },
    ]
}

/// Functions that lock memory. Memory mapped in advance must not be locked, and pages that they bring in are to be placed.
pub fn wanted_locks() -> [Wanted; 4] {
    let newer = wanted(c"mlock2", nr::MLOCK2, entry::mlock2 as *const () as usize);
    [
        wanted(c"mlock", nr::MLOCK, entry::mlock as *const () as usize),
        wanted(c"munlock", nr::MUNLOCK, entry::munlock as *const () as usize),
        Wanted { optional: true, ..wanted(c"munlockall", nr::MUNLOCKALL, entry::munlockall as *const () as usize) },
        Wanted { optional: true, ..newer },
    ]
}

/// Functions that the kernel allows only to processes of a single thread.
pub fn wanted_namespaces() -> [Wanted; 2] {
    [
        Wanted { optional: true, ..wanted(c"unshare", nr::UNSHARE, entry::unshare as *const () as usize) },
        Wanted { optional: true, ..wanted(c"setns", nr::SETNS, entry::setns as *const () as usize) },
    ]
}

/// Newer functions that give memory a property.
pub fn wanted_properties() -> [Wanted; 2] {
    let advise = entry::process_madvise as *const () as usize;
    let seal = entry::mseal as *const () as usize;
    [
        Wanted { optional: true, ..wanted(c"process_madvise", nr::PROCESS_MADVISE, advise) },
        Wanted { optional: true, ..wanted(c"mseal", nr::MSEAL, seal) },
    ]
}

/// Functions by which threads become real-time.
pub fn wanted_scheduling() -> [Wanted; 3] {
    let policy =
        wanted(c"sched_setscheduler", nr::SCHED_SETSCHEDULER, entry::sched_setscheduler as *const () as usize);
    let priority = wanted(c"sched_setparam", nr::SCHED_SETPARAM, entry::sched_setparam as *const () as usize);
    let both = wanted(c"sched_setattr", nr::SCHED_SETATTR, entry::sched_setattr as *const () as usize);
    [policy, priority, both].map(|one| Wanted { optional: true, ..one })
}

/// Functions that decide about memory that is mapped later.
pub fn wanted_for_later() -> [Wanted; 2] {
    let persona = wanted(c"personality", nr::PERSONALITY, entry::personality as *const () as usize);
    let all = wanted(c"mlockall", nr::MLOCKALL, entry::mlockall as *const () as usize);
    [Wanted { optional: true, ..all }, Wanted { optional: true, ..persona }]
}

/// Functions by which a program registers its own memory.
pub fn wanted_registering() -> [Wanted; 1] {
    [Wanted { optional: true, ..wanted(c"ioctl", nr::IOCTL, entry::ioctl as *const () as usize) }]
}

pub fn wanted_exits() -> [Wanted; 4] {
    let at = wanted(c"execveat", nr::EXECVEAT, entry::execveat as *const () as usize);
    [
        wanted(c"_exit", nr::EXIT_GROUP, entry::exit_now as *const () as usize),
        wanted(c"execve", nr::EXECVE, entry::execve as *const () as usize),
        wanted(c"fexecve", nr::EXECVEAT, entry::fexecve as *const () as usize),
        Wanted { optional: true, ..at },
    ]
}

/// Functions by which programs restrict their own system calls.
pub fn wanted_sandbox() -> [Wanted; 2] {
    let generic = entry::generic_syscall as *const () as usize;
    [
        wanted(c"prctl", nr::PRCTL, entry::prctl as *const () as usize),
        Wanted { name: c"syscall", shape: Shape::GenericSyscall, target: generic, optional: false },
    ]
}
