//! File mappings: prepaging by the policy, and the pages resident at start.
//!
//! `demand` is MADV_RANDOM: no readahead on faults. Mappings come from three sources: libc's mmap (detoured); before
//! the library's start (scanned once); and ld.so's own mmap for dlopen (scanned again each time ld.so reports to
//! debuggers that its list of objects is complete, which it does before it relocates the new object).

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use pagelab_abi::guest::{Counter, GuestWarning, PATH_BYTES};
use pagelab_abi::plan::{Fetch, Memory};

use crate::backing;
use crate::boundary::arch::PAGE;
use crate::boundary::elf;
use crate::boundary::maps::{self, Mapping};
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, c};
use crate::state::layout::Layout;
use crate::state::{guest_file, plan, seccomp};

use super::calls::has_registered;
use super::prefault;

/// `r_state` of ld.so's `_r_debug`.
static OBJECTS_STATE: AtomicPtr<AtomicI32> = AtomicPtr::new(core::ptr::null_mut());
const CONSISTENT: i32 = 0;
/// Offset of `r_state` in `struct r_debug`: after a version, a list and an address.
const STATE_OFFSET: usize = 24;

/// Records where ld.so's `_r_debug` lies.
pub fn watch(r_debug: usize) {
    OBJECTS_STATE.store((r_debug + STATE_OFFSET) as *mut AtomicI32, Ordering::Release);
    LOADS.store(elf::each(&mut |_, _| {}).1, Ordering::Relaxed);
}

fn fetch_of(len: usize) -> Fetch {
    plan::section_for(Memory::File, len).map_or(Fetch::Kernel, |section| section.fetch)
}

/// Gives the policy's advice on a file that libc's mmap has just mapped, if nothing has to be waited for.
pub fn after_mmap(span: Span, prot: i32) {
    let fetch = fetch_of(span.len());
    if fetch == Fetch::Demand {
        apply(span, prot, fetch);
    }
}

/// Whether the policy wants pages of a file's mapping of this length brought in.
pub fn brings_in(len: usize) -> bool {
    matches!(fetch_of(len), Fetch::Prefault | Fetch::WillNeed)
}

/// Whether [`bring_in`] is to bring in a mapping of the file behind `fd`. (Where only what is in memory may be populated,
/// this function does that: nothing of it has to be waited for.)
pub fn is_to_bring_in(span: Span, prot: i32, fd: i32) -> bool {
    if fetch_of(span.len()) == Fetch::WillNeed {
        return true;
    }
    match harmless(fd) {
        Harmless::Everything => may_prefault(span, prot),
        Harmless::Present => {
            prefault::each_run(span, true, &mut |run| apply(run, prot, Fetch::Prefault));
            false
        }
        Harmless::Nothing => false,
    }
}

/// Brings it in; uses little of the caller's stack.
pub fn bring_in(span: Span) {
    let fetch = fetch_of(span.len());
    let advice = if fetch == Fetch::Prefault { Advice::PopulateRead } else { Advice::WillNeed };
    counted(sys::advise(span.start, span.len(), advice), span, fetch);
}

fn may_prefault(span: Span, prot: i32) -> bool {
    prot & c::PROT_READ != 0 && prefault::has_room(span.len())
}

/// What can be brought in of a mapped file without a change to the file.
enum Harmless {
    Everything,
    Present,
    Nothing,
}

/// Where the file is its pages in memory (tmpfs, memfd, hugetlbfs; perhaps under an overlay), a fault in a hole gives it
/// another page, even a fault that reads. And where it is a device, its driver answers the fault.
fn harmless(fd: i32) -> Harmless {
    match sys::contents(fd) {
        Ok(file) if !file.is_cached => Harmless::Nothing,
        Ok(file) if !file.may_grow => Harmless::Everything,
        // Another mapping of the same pages may wait for the program's handler.
        Ok(_) if has_registered() => Harmless::Nothing,
        Ok(file) if !file.has_holes => Harmless::Everything,
        // To others the kernel reports every page as present.
        Ok(file) if file.is_own => Harmless::Present,
        _ => Harmless::Nothing,
    }
}

fn apply(span: Span, prot: i32, fetch: Fetch) {
    let advice = match fetch {
        Fetch::Kernel => return,
        Fetch::Demand => Advice::Random,
        Fetch::WillNeed => Advice::WillNeed,
        Fetch::Prefault if !may_prefault(span, prot) => return,
        Fetch::Prefault => Advice::PopulateRead,
    };
    counted(sys::advise(span.start, span.len(), advice), span, fetch);
}

fn counted(advised: sys::Result<()>, span: Span, fetch: Fetch) {
    match advised {
        Ok(()) if fetch == Fetch::Prefault => guest_file::count(Counter::FilesPrefaulted),
        Ok(()) => guest_file::count(Counter::FilesAdvised),
        // Beyond the end of the file there is nothing to populate.
        Err(sys::Errno::EFAULT) if fetch == Fetch::Prefault => {}
        Err(errno) => {
            guest_file::count(Counter::FilesRefused);
            guest_file::warn(GuestWarning::AdviceRefused, Some(errno), span.start, span.len());
        }
    }
}

/// Whether the program's own advice would undo the policy.
pub fn overrules(len: usize, advice: i32) -> bool {
    const MADV_SEQUENTIAL: i32 = 2;
    matches!(advice, c::MADV_NORMAL | MADV_SEQUENTIAL | c::MADV_WILLNEED)
        && fetch_of(len) == Fetch::Demand
        && !seccomp::is_active()
}

/// Scans objects again after ld.so's list of them has changed.
pub fn rescan() {
    // SAFETY: null, or ld.so's own variable, which lives as long as the process.
    let state = unsafe { OBJECTS_STATE.load(Ordering::Acquire).as_ref() };
    if seccomp::is_active() || state.is_none_or(|state| state.load(Ordering::Relaxed) != CONSISTENT) {
        return;
    }
    guest_file::count(Counter::DlopenRescans);
    let (objects, loads) = elf::each(&mut |_, _| {});
    let new = loads.saturating_sub(LOADS.swap(loads, Ordering::Relaxed));
    // New objects are at the list's end; dlclose may have removed others before them.
    let first_new = u64::from(objects).saturating_sub(new);
    elf::each(&mut |index, segments| {
        if u64::from(index) < first_new {
            return;
        }
        for segment in segments {
            apply(segment.file, c::PROT_READ, fetch_of(segment.file.len()));
            if segment.write {
                govern(Memory::Data, segment.memory);
            }
        }
    });
}

/// Number of objects loaded up to the last scan.
static LOADS: AtomicU64 = AtomicU64::new(0);

/// A scan of existing mappings, in the order of their addresses, that applies the policy to them.
#[derive(Default)]
pub struct Scan {
    /// End of the last mapping with an object's data: bss may follow.
    data_end: usize,
}

impl Scan {
    /// Handles one mapping.
    pub fn visit(&mut self, mapping: &Mapping<'_>) {
        if mapping.is_file() {
            let prot = if mapping.read { c::PROT_READ } else { c::PROT_NONE };
            apply(mapping.span, prot, fetch_of(mapping.span.len()));
        }
        match maps::kind_of(mapping, self.data_end) {
            Some(Memory::Data) => {
                self.data_end = mapping.span.end;
                govern(Memory::Data, mapping.span);
            }
            Some(Memory::Stack) => govern(Memory::Stack, mapping.span),
            _ => {}
        }
    }
}

/// Advises memory that exists already; whole tiles that were touched are collapsed.
fn govern(memory: Memory, span: Span) {
    let Some(plan) = plan::current() else { return };
    let Some(section) = plan::section_for(memory, span.len()).filter(|section| section.governs_pages()) else {
        return;
    };
    let layout = Layout::new(plan, section, span.start, span.len());
    layout.each(span, &mut |piece, part| backing::apply(part, piece.backing));
}

/// Records how much of each mapped file is in the page cache.
pub struct Residency {
    buffer: [u8; 2048],
    /// The last file that was checked, by its inode, and whether it is examined.
    last: Option<(u64, bool)>,
    /// Addresses at which files begin that need no examination.
    known: [usize; 2],
}

impl Residency {
    /// Leaves out files that are mapped from an address of `known` on.
    pub fn without(known: [usize; 2]) -> Residency {
        Residency { buffer: [0; 2048], last: None, known }
    }

    /// Records one mapping; to be called in the order of addresses.
    pub fn record(&mut self, mapping: &Mapping<'_>) {
        if !mapping.is_file() || !self.concerns(mapping) {
            return;
        }
        let (mut pages, mut resident) = (0u64, 0u64);
        let mut at = mapping.span.start;
        while at < mapping.span.end {
            let len = (mapping.span.end - at).min(self.buffer.len() * PAGE);
            if sys::mincore(at, len, &mut self.buffer).is_err() {
                return;
            }
            pages += (len / PAGE) as u64;
            resident += self.buffer.iter().take(len / PAGE).filter(|&&byte| byte & 1 != 0).count() as u64;
            at += len;
        }
        store_residency(mapping.name, pages, resident);
    }

    /// Whether the file is examined. Mappings of one file are neighbours, so each file is checked once.
    fn concerns(&mut self, mapping: &Mapping<'_>) -> bool {
        let looked_at = match self.last {
            Some((inode, looked_at)) if inode == mapping.inode => looked_at,
            // For files that the process might not write to, the kernel claims that everything is resident.
            _ => !self.known.contains(&mapping.span.start) && sys::may_write(mapping.name),
        };
        self.last = Some((mapping.inode, looked_at));
        looked_at
    }
}

fn store_residency(name: &[u8], pages: u64, resident: u64) {
    use core::sync::atomic::Ordering::Relaxed;
    let Some(file) = guest_file::file() else { return };
    let kept = name.get(name.len().saturating_sub(PATH_BYTES)..).unwrap_or(name);
    let used = file.residency_count.load(Relaxed) as usize;
    // Mappings of one file are neighbours: add to its slot.
    if let Some(last) = used.checked_sub(1).and_then(|index| file.residency.get(index)) {
        let same = last.path_bytes.load(Relaxed) as usize == kept.len()
            && last.path.iter().zip(kept).all(|(a, b)| a.load(Relaxed) == *b);
        if same {
            last.pages.fetch_add(pages, Relaxed);
            last.resident.fetch_add(resident, Relaxed);
            return;
        }
    }
    let Some(slot) = file.residency.get(used).filter(|slot| guest_file::has_room(*slot)) else {
        file.residency_dropped.fetch_add(1, Relaxed);
        return;
    };
    for (to, from) in slot.path.iter().zip(kept) {
        to.store(*from, Relaxed);
    }
    guest_file::set(&slot.path_bytes, kept.len() as u64);
    guest_file::set(&slot.pages, pages);
    guest_file::set(&slot.resident, resident);
    guest_file::set(&file.residency_count, used as u64 + 1);
}
