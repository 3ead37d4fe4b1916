//! Variables of libc's that the library reads or sets.

use core::ffi::c_ulong;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::arch;
use super::elf::{self, Object};
use super::own::Published;
use super::sys;

/// libc's `__curbrk`, which its sbrk reads.
static CURRENT_BREAK: Published<AtomicUsize> = Published::none();

/// Records that libc's `__curbrk` lies at `address`; returns its present value (0: nobody has asked for the break yet).
pub fn found_break(address: usize) -> usize {
    // SAFETY: the address is that of libc's own variable, which lives as long as the process.
    let word = unsafe { &*(address as *const AtomicUsize) };
    CURRENT_BREAK.set(Some(word));
    word.load(Ordering::Relaxed)
}

/// Stores the break where libc's sbrk looks for it.
pub fn set_current_break(end: usize) {
    if let Some(word) = CURRENT_BREAK.get() {
        word.store(end, Ordering::Relaxed);
    }
}

/// libc's `__libc_single_threaded`.
static ONE_THREAD: Published<AtomicBool> = Published::none();

/// Records that libc's `__libc_single_threaded` lies at `address`.
pub fn found_one_thread(address: usize) {
    // SAFETY: the address is that of libc's own variable, which lives as long as the process.
    ONE_THREAD.set(Some(unsafe { &*(address as *const AtomicBool) }));
}

/// Whether the process has one thread, as libc's variable says without a system call.
pub fn has_one_thread() -> bool {
    ONE_THREAD.get().is_some_and(|one| one.load(Ordering::Relaxed))
}

/// The segment of libc's own code, which contains its memory calls; 0: not known.
static CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Finds that segment.
pub fn find_code(libc: &Object) {
    let Some(symbol) = libc.symbol(c"mmap") else { return };
    elf::each(&mut |_, segments| {
        if let Some(code) =
            segments.map(|one| one.memory).find(|span| (span.start..span.end).contains(&symbol.address))
        {
            CODE[0].store(code.start, Ordering::Relaxed);
            CODE[1].store(code.end, Ordering::Relaxed);
        }
    });
}

/// Whether libc has code at `addr`.
pub fn has_code_at(addr: usize) -> bool {
    (CODE[0].load(Ordering::Relaxed)..CODE[1].load(Ordering::Relaxed)).contains(&addr)
}

/// Whether the kernel gave the program rights that its caller did not have (AT_SECURE: set-user-ID, file capabilities).
/// The dynamic linker then preloads nothing from elsewhere; a program that is linked with the library is asked here.
pub fn has_more_rights(libc: &Object) -> bool {
    const AT_SECURE: c_ulong = 23;
    libc.symbol(c"getauxval").is_none_or(|symbol| {
        // SAFETY: glibc's function, since 2.16, has this signature.
        let value = unsafe { core::mem::transmute::<usize, extern "C" fn(c_ulong) -> c_ulong>(symbol.address) };
        value(AT_SECURE) != 0
    })
}

type ClockOf = unsafe extern "C" fn(usize, *mut i32) -> i32;

/// libc's `pthread_getcpuclockid`; 0: it has none.
static CLOCK_OF: AtomicUsize = AtomicUsize::new(0);

/// Finds that function. Called by the constructor, since a search takes the dynamic linker's lock, which in a child may
/// be that of a thread that does not exist there.
pub fn find_clock(libc: &Object) {
    let name = c"pthread_getcpuclockid";
    // Before glibc 2.34 it is in another library, which a program with one thread may lack.
    let symbol = libc.symbol(name).or_else(|| elf::find(&|object| object.symbol(name).is_some())?.symbol(name));
    CLOCK_OF.store(symbol.map_or(0, |symbol| symbol.address), Ordering::Relaxed);
}

/// The id that libc believes the calling thread to have, without a system call. In a child that was made past libc (by
/// its `clone`, or a system call), or that shares its parent's memory (vfork), it is that of the parent's thread.
pub fn id_of_this_thread() -> Option<u32> {
    let address = CLOCK_OF.load(Ordering::Relaxed);
    if address == 0 {
        return None;
    }
    let mut clock = 0;
    // SAFETY: glibc's function has this signature; a thread's pointer is its pthread_t. It computes the number of the
    // thread's clock from libc's id of the thread, without a system call.
    let status = unsafe { core::mem::transmute::<usize, ClockOf>(address)(arch::thread_pointer(), &raw mut clock) };
    // The kernel's numbers of such clocks: the complement of the id, and three bits of kind (include/linux/posix-timers.h).
    (status == 0).then_some(!(clock >> 3) as u32)
}

/// Whether libc made the calling thread, so that it has the id that libc believes it to have. A child that was made past
/// libc may end by the system call that ends its only thread.
pub fn knows_this_thread() -> bool {
    CLOCK_OF.load(Ordering::Relaxed) == 0 || id_of_this_thread() == Some(sys::gettid())
}

/// Number of threads of the process, including the library's own.
pub fn threads() -> usize {
    sys::link_count(c"/proc/self/task").map_or(1, |links| (links as usize).saturating_sub(2))
}

/// Whether the process has one thread now, as the kernel says: libc does not know of threads that were made past it.
pub fn is_alone() -> bool {
    // Without /proc (in a chroot), libc's variable has to do.
    sys::link_count(c"/proc/self/task").map_or_else(|_| has_one_thread(), |links| links == 3)
}
