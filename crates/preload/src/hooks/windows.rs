//! Windows: measurements that the program itself makes between `pagelab_begin` and `pagelab_end`.
//!
//! After the first window nothing is locked: a thread writes only to its own slots of the windows file, and ended
//! windows are claimed one by one. A window costs system calls (0.2 to 0.8 µs each on virtual machines): two getrusage,
//! at its begin and its end, and two more where the process has several threads. The threads' own clocks would cost
//! twice as much as getrusage. Where events are counted, each adds two calls at both ends ([`counters`]).

mod counters;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use pagelab_abi::plan::Flags;

use pagelab_abi::windows::{
    FILE_BYTES, GROWTH, HEAD_BYTES, MAGIC, NAME_BYTES, NameSlot, OpenSlot, PlacedSlot, SUFFIX, TRACE_MARKER,
    ThreadSlot, UsageSlot, VERSION, WindowSlot, WindowsFile,
};

use crate::boundary::apart::apart;
use crate::boundary::arch::{self, PAGE};
use crate::boundary::own::Published;
use crate::boundary::sys::{self, Advice, Errno, Result, c};
use crate::boundary::{elf, libc};
use crate::memory::measure;
use crate::state::lock::Locked;
use crate::state::{child, guest_file, own_stack, plan, seccomp};

static FILE: Published<WindowsFile> = Published::none();
/// Held while the file is made and while names are added.
static MAKING: Locked<()> = Locked::new(());
/// Slots of `windows` that have space, and the lock under which their number grows.
static ROOM: AtomicUsize = AtomicUsize::new(0);
static GROWING: Locked<()> = Locked::new(());

/// Looks up libc's own `__libc_single_threaded` (glibc 2.32); not one that the program may have put in front of it.
fn find_one_thread() {
    if let Some(symbol) = elf::glibc().and_then(|libc| libc.symbol(c"__libc_single_threaded")) {
        libc::found_one_thread(symbol.address);
    }
}

/// Processor time of the thread, then what the process has used (user and system time, faults without I/O and with
/// I/O).
fn used() -> [u64; 5] {
    let [user_ns, system_ns, minor, major] = measure::used_by(sys::OF_PROCESS).unwrap_or_default();
    let thread_ns = match libc::has_one_thread() {
        true => user_ns + system_ns,
        false => measure::used_by(sys::OF_THREAD).map_or(0, |[user_ns, system_ns, ..]| user_ns + system_ns),
    };
    [thread_ns, user_ns, system_ns, minor, major]
}

/// Forgets the file: after a fork it belongs to the parent.
pub fn forget() {
    FILE.set(None);
    ROOM.store(0, Relaxed);
    OPEN.store(0, Relaxed);
    counters::forget();
    MAKING.reset_after_fork();
    GROWING.reset_after_fork();
}

/// Windows that threads of a traced program have open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Under an emulator, reports where the program's windows begin and end, so that its trace can keep only the windows.
fn mark_trace(begins: bool) {
    if !plan::has_flag(Flags::EMULATED) {
        return;
    }
    let changes = match begins {
        true => OPEN.fetch_add(1, Relaxed) == 0,
        false => OPEN.fetch_sub(1, Relaxed) == 1,
    };
    if changes {
        // SAFETY: the kernel refuses this option and changes nothing.
        let _ = unsafe { sys::prctl([TRACE_MARKER, usize::from(begins), 0, 0, 0]) };
    }
}

fn made() -> Option<&'static WindowsFile> {
    FILE.get()
}

/// The file, made at the first window.
fn file() -> Result<&'static WindowsFile> {
    if seccomp::is_active() {
        return Err(Errno::EOPNOTSUPP);
    }
    child::adopt();
    made().map_or_else(|| own_stack::run(make), Ok)
}

#[cold]
fn make() -> Result<&'static WindowsFile> {
    let _held = MAKING.lock();
    if let Some(file) = made() {
        return Ok(file);
    }
    let plan = plan::current().ok_or(Errno::EOPNOTSUPP)?;
    let (address, pid) = guest_file::beside(&plan, SUFFIX, FILE_BYTES, HEAD_BYTES)?;
    // A child that has not met the guest must not find its parent's windows: it has none.
    // SAFETY: the mapping was just made, and only this function knows of it.
    unsafe { sys::madvise(address, FILE_BYTES.next_multiple_of(PAGE), c::MADV_DONTFORK) }?;
    // SAFETY: a fresh zeroed mapping of the right size and alignment, never unmapped, with atomic fields only.
    let file = unsafe { &*(address as *const WindowsFile) };
    guest_file::set(&file.version, VERSION);
    guest_file::set(&file.file_bytes, FILE_BYTES as u64);
    guest_file::set(&file.pid, u64::from(pid));
    find_one_thread();
    guest_file::set(&file.events, counters::find(plan.run_dir()) as u64);
    file.magic.store(MAGIC, Release);
    FILE.set(Some(file));
    Ok(file)
}

/// Begins a window of the calling thread.
pub fn begin(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(Errno::EINVAL);
    }
    let file = file()?;
    let told = &file.told;
    let number = number_of(file, name).ok_or_else(|| refused(&told.names_left_out))?;
    let own = thread_slot(file).ok_or_else(|| refused(&told.threads_left_out))?;
    let depth = own.depth.load(Relaxed) as usize;
    let (outer, slot) = (own.open.get(..depth).unwrap_or(&[]), own.open.get(depth));
    if outer.iter().any(|open| open.name.load(Relaxed) == number) {
        told.begun_twice.fetch_add(1, Relaxed);
    }
    let OpenSlot { name, placed, begin } = slot.ok_or_else(|| refused(&told.too_deep))?;
    guest_file::set(name, number);
    guest_file::set(&placed.looked, 0);
    own.depth.store(depth as u64 + 1, Relaxed);
    // The clock is read last here and first at the end. So no window's time includes the other readings, and no
    // window's processor time includes that of the counters.
    counters::begin(index_of(file, own), depth);
    let used = used();
    for (field, value) in fields(begin).into_iter().zip([sys::monotonic_ns()].into_iter().chain(used)) {
        guest_file::set(field, value);
    }
    mark_trace(true);
    Ok(())
}

/// Ends the window of the calling thread that began last.
pub fn end() -> Result<()> {
    let (wall_ns, used, counted) = (sys::monotonic_ns(), used(), counters::read());
    let file = file()?;
    let told = &file.told;
    let Some((own, depth, OpenSlot { name, placed, begin })) = innermost(file) else {
        told.not_begun.fetch_add(1, Relaxed);
        return Err(Errno::EINVAL);
    };
    mark_trace(false);
    let done = claim(file).map(|slot| {
        guest_file::set(&slot.begin_ns, begin.wall_ns.load(Relaxed));
        for (into, found) in looks(&slot.placed).into_iter().zip(looks(placed)) {
            guest_file::set(into, found.load(Relaxed));
        }
        let ends = [wall_ns].into_iter().chain(used);
        for ((used, begin), end) in fields(&slot.used).into_iter().zip(fields(begin)).zip(ends) {
            guest_file::set(used, end.saturating_sub(begin.load(Relaxed)));
        }
        counters::end(index_of(file, own), depth, &counted, &slot.counts);
        slot.name.store(name.load(Relaxed) + 1, Release);
    });
    own.depth.store(depth as u64, Relaxed);
    if depth == 0 {
        own.thread.store(0, Release);
    }
    done.ok_or_else(|| refused(&told.windows_left_out))
}

/// The calling thread's slot, its last window's index and that window; `None`: it has none open.
fn innermost(file: &'static WindowsFile) -> Option<(&'static ThreadSlot, usize, &'static OpenSlot)> {
    let pointer = arch::thread_pointer() as u64;
    let own = file.threads.iter().find(|slot| slot.thread.load(Relaxed) == pointer)?;
    let depth = (own.depth.load(Relaxed) as usize).checked_sub(1)?;
    Some((own, depth, own.open.get(depth)?))
}

/// Measures where the process's memory lies, for the window that the calling thread began last. The time and the events
/// that this takes are taken out of all windows that this thread has open.
pub fn placement() -> Result<()> {
    let (counted, before) = (counters::read(), (sys::monotonic_ns(), used()));
    let file = file()?;
    let (own, depth, open) = innermost(file).ok_or(Errno::EINVAL)?;
    let (resident, huge) = own_stack::run(|| apart(measure::in_memory))??;
    let found = [1, resident as u64, huge as u64];
    for (field, value) in looks(&open.placed).into_iter().zip(found) {
        guest_file::set(field, value);
    }
    let after = (sys::monotonic_ns(), used());
    let took =
        [after.0 - before.0].into_iter().chain(after.1.into_iter().zip(before.1).map(|(b, a)| b.saturating_sub(a)));
    for (level, took) in took.enumerate() {
        for open in own.open.iter().take(depth + 1) {
            if let Some(field) = fields(&open.begin).get(level) {
                guest_file::set(field, field.load(Relaxed) + took);
            }
        }
    }
    counters::leave_out(index_of(file, own), depth, &counted);
    Ok(())
}

/// The number of a thread's slot.
fn index_of(file: &WindowsFile, own: &ThreadSlot) -> usize {
    (core::ptr::from_ref(own) as usize - file.threads.as_ptr() as usize) / size_of::<ThreadSlot>()
}

fn looks(slot: &PlacedSlot) -> [&AtomicU64; 3] {
    let PlacedSlot { looked, resident, huge } = slot;
    [looked, resident, huge]
}

/// The clock, the thread's clock, and what the process has used.
fn fields(slot: &UsageSlot) -> [&AtomicU64; 6] {
    let UsageSlot { wall_ns, thread_ns, user_ns, system_ns, minor_faults, major_faults } = slot;
    [wall_ns, thread_ns, user_ns, system_ns, minor_faults, major_faults]
}

fn refused(told: &AtomicU64) -> Errno {
    told.fetch_add(1, Relaxed);
    Errno::ENOSPC
}

/// Claims the slot of an ended window; `None`: there are too many, or no space.
fn claim(file: &'static WindowsFile) -> Option<&'static WindowSlot> {
    loop {
        let next = file.count.load(Relaxed);
        let slot = file.windows.get(next as usize)?;
        if next as usize >= ROOM.load(Acquire) && !own_stack::run(|| grow(file, next as usize)) {
            return None;
        }
        if file.count.compare_exchange_weak(next, next + 1, Relaxed, Relaxed).is_ok() {
            return Some(slot);
        }
    }
}

/// Makes space for windows from number `first` on. A store into a page for which the file system has no room would end
/// the process; populating the page only fails.
#[cold]
fn grow(file: &'static WindowsFile, first: usize) -> bool {
    let _held = GROWING.lock();
    if first < ROOM.load(Relaxed) {
        return true;
    }
    let more = file.windows.get(first..(first + GROWTH).min(file.windows.len())).unwrap_or(&[]);
    let start = more.as_ptr() as usize / PAGE * PAGE;
    let end = (more.as_ptr_range().end as usize).next_multiple_of(PAGE);
    let populated = sys::advise(start, end - start, Advice::PopulateWrite).is_ok();
    if populated {
        ROOM.store(first + more.len(), Release);
    }
    populated
}

fn is_named(slot: &NameSlot, name: &[u8]) -> bool {
    slot.bytes.load(Acquire) as usize == name.len()
        && slot.text.iter().zip(name).all(|(have, byte)| have.load(Relaxed) == *byte)
}

/// The number of a name; `None`: there are too many.
fn number_of(file: &'static WindowsFile, name: &[u8]) -> Option<u64> {
    let find = || {
        let mut used = file.names.iter().take_while(|slot| slot.bytes.load(Acquire) != 0);
        used.position(|slot| is_named(slot, name)).map(|number| number as u64)
    };
    let add = || {
        let _held = MAKING.lock();
        // Another thread may have added it.
        find().or_else(|| {
            let (number, slot) = file.names.iter().enumerate().find(|(_, slot)| slot.bytes.load(Relaxed) == 0)?;
            for (to, from) in slot.text.iter().zip(name) {
                to.store(*from, Relaxed);
            }
            slot.bytes.store(name.len() as u64, Release);
            Some(number as u64)
        })
    };
    find().or_else(|| own_stack::run(add))
}

/// The calling thread's slot, a free one if it has none.
fn thread_slot(file: &'static WindowsFile) -> Option<&'static ThreadSlot> {
    let pointer = arch::thread_pointer() as u64;
    let own = file.threads.iter().find(|slot| slot.thread.load(Relaxed) == pointer);
    own.or_else(|| {
        file.threads.iter().find(|slot| slot.thread.compare_exchange(0, pointer, Acquire, Relaxed).is_ok())
    })
}
