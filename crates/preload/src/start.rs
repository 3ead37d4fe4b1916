//! Start-up: finds the plan, checks libc, puts the detours in place. Either all of it works, or the library leaves the
//! process alone and reports why.

mod detour;
#[cfg(not(test))]
mod no_std_runtime;
mod wanted;

use core::ffi::{CStr, c_char, c_int};

use pagelab_abi::guest::{DisabledReason, GuestWarning, Started, State};
use pagelab_abi::plan::{Fetch, Flags, Memory, Plan, Section, Via};

use crate::backing;
use crate::backing::thp;
use crate::boundary::arch::{self, nr};
use crate::boundary::elf::{self, Object};
use crate::boundary::own::Once;
use crate::boundary::sys::{self, Errno, c};
use crate::boundary::{libc, maps};
use crate::hooks::environment::Strings;
use crate::hooks::{child, entry, environment, fork, seccomp};
use crate::memory::{calls, files, measure, tables};
use crate::state::message::say;
use crate::state::{child as known, guest_file, plan};

use detour::{Detours, Refusal, Shape, Wanted};
use wanted::{
    wanted, wanted_exits, wanted_for_later, wanted_locks, wanted_memory, wanted_namespaces, wanted_properties,
    wanted_registering, wanted_sandbox, wanted_scheduling,
};

/// Why the guest does nothing.
struct Stop {
    reason: DisabledReason,
    errno: Option<Errno>,
}

impl From<DisabledReason> for Stop {
    fn from(reason: DisabledReason) -> Stop {
        Stop { reason, errno: None }
    }
}

/// The constructor's body; the arguments are what glibc passes to initialisers.
///
/// # Safety
/// Called once, by the dynamic linker, before the program's own code.
pub unsafe fn start(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    // Other C libraries pass no arguments, so the code finds out which libc this is before it reads them.
    let Some(libc) = elf::glibc() else {
        say(format_args!("this program does not run on the GNU C library: nothing is governed (unknown-libc)"));
        return;
    };
    // Before any other code can register handlers of forks; without a system call, whatever filters there are.
    fork::watch(&libc);
    libc::find_clock(&libc);
    libc::find_code(&libc);
    backing::find_own_data();
    if looks_for_leaks() {
        backing::forbid();
    }
    // Whoever starts a program that has more rights than he has says nothing about it: a plan, and the directory of its
    // run, would be opened and written with those rights.
    if libc::has_more_rights(&libc) {
        return ready_for_hints();
    }
    // SAFETY: glibc passes the environment, terminated by a null pointer; its strings stay.
    let given = unsafe { Strings::at(envp as usize) };
    let Some(path) = variable(given, environment::PLAN) else { return without_plan(given) };
    // A filter installed after the launcher's start may kill the process for any call but the dynamic linker's.
    if seccomp::filters() > known_filters(given) {
        return;
    }
    // Without memory for it nothing is governed.
    let _ = known::watch();
    environment::remember(given);
    let start_ns = sys::monotonic_ns();
    let plan = match load_plan(path) {
        Ok(plan) => plan,
        Err(stop) => {
            say(format_args!("cannot use the plan {path:?}: {}: nothing is governed", stop.reason.name()));
            return;
        }
    };
    if let Err(errno) = guest_file::create(&plan, Started::Exec, start_ns)
        && !guest_file::is_told()
    {
        say(format_args!("cannot create a guest file in the run directory: errno {}", errno.0));
    }
    // SAFETY: the constructor runs before there are threads, which `govern` checks.
    match unsafe { govern(plan, &libc) } {
        Ok(()) => guest_file::state(State::Active),
        Err(stop) => {
            guest_file::disabled(stop.reason, stop.errno);
            let errno = stop.errno.map_or(0, |errno| errno.0);
            say(format_args!("nothing is governed in this process: {} (errno {errno})", stop.reason.name()));
        }
    }
    guest_file::ready();
}

/// Prepares for the program's own hints. Programs that are linked with the library, for its functions, are started
/// without a plan as a rule.
fn without_plan(given: Strings<'static>) {
    if is_preloaded(given) {
        say(format_args!("PAGELAB_PLAN is not set: nothing is governed; start programs with: pagelab run -- CMD"));
    }
    ready_for_hints();
}

fn ready_for_hints() {
    if seccomp::filters() == 0 {
        // Without memory for it hints are refused.
        let _ = known::watch();
        backing::hints::learn_default();
    }
}

/// The value of the variable whose name and equals sign are `prefix`.
fn variable(mut environment: Strings<'static>, prefix: &[u8]) -> Option<&'static CStr> {
    let found = environment.find(|entry| entry.to_bytes().starts_with(prefix))?;
    CStr::from_bytes_with_nul(found.to_bytes_with_nul().get(prefix.len()..)?).ok()
}

/// Whether `LD_PRELOAD` names the library.
fn is_preloaded(environment: Strings<'static>) -> bool {
    variable(environment, environment::PRELOAD).is_some_and(|list| environment::names_library(list.to_bytes()))
}

/// Number of filters that the launcher is under, as it reports; 0 if it reports nothing.
fn known_filters(environment: Strings<'static>) -> u32 {
    let text = variable(environment, environment::FILTERS).map_or(&[][..], CStr::to_bytes);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |value, &byte| value.saturating_mul(10).saturating_add(u32::from(byte - b'0')))
}

fn load_plan(path: &CStr) -> Result<Plan<'static>, Stop> {
    let unreadable = |errno| Stop { reason: DisabledReason::PlanUnreadable, errno: Some(errno) };
    let fd = sys::open(path, c::O_RDONLY, 0).map_err(unreadable)?;
    let bytes = read_plan(fd);
    sys::close(fd);
    Plan::parse(bytes.map_err(unreadable)?).map_err(|_| DisabledReason::PlanInvalid.into())
}

/// Memory for a short plan: a separate mapping would cost every fork more than this does.
static SHORT_PLAN: Once<[u8; 1024]> = Once::empty();

/// Reads the plan from the file behind `fd`; it stays in memory for good.
fn read_plan(fd: i32) -> Result<&'static [u8], Errno> {
    let len = sys::file_size(fd)?;
    let mut short = [0; 1024];
    if let Some(bytes) = short.get_mut(..len) {
        if sys::pread(fd, bytes, 0)? == len {
            SHORT_PLAN.set(short);
        }
        return SHORT_PLAN.get().and_then(|all| all.get(..len)).ok_or(Errno::EINVAL);
    }
    let at = sys::map_file(fd, len, c::PROT_READ, c::MAP_PRIVATE)?;
    // SAFETY: mapped just now and never unmapped; the launcher does not change a plan it has handed out.
    Ok(unsafe { core::slice::from_raw_parts(at as *const u8, len) })
}

/// The plan's requirements on the guest.
#[derive(Default)]
struct Needs {
    memory: bool,
    heap: bool,
    files: bool,
    exits: bool,
    hugetlb: bool,
    sizes: bool,
    frames: bool,
}

impl Needs {
    fn of(plan: &Plan<'_>) -> Needs {
        let mut needs = Needs::default();
        for section in (0..plan.section_count()).filter_map(|number| plan.section(number)) {
            needs.sizes |= section.governs_pages();
            needs.hugetlb |= names_hugetlb(plan, &section);
            let frames = section.governs_frames();
            let governed = section.governs_pages() || frames || section.fetch != Fetch::Kernel;
            needs.sizes |= frames;
            needs.frames |= frames;
            match section.memory {
                Memory::Heap => needs.heap |= governed,
                Memory::Anon | Memory::Arenas | Memory::Range => needs.memory |= governed,
                Memory::File => needs.files |= governed,
                Memory::Data | Memory::Stack => {}
            }
        }
        needs.exits = plan::at_exit(plan);
        needs
    }
}

fn names_hugetlb(plan: &Plan<'_>, section: &Section) -> bool {
    let reserved = |page_bytes: u64, via| via == Via::Hugetlb || page_bytes > arch::PMD as u64;
    let mut intervals = (0..section.interval_count()).filter_map(|index| plan.interval(section, index));
    reserved(section.otherwise, section.otherwise_via)
        || intervals.any(|piece| reserved(piece.page_bytes, piece.via))
}

/// Whether the plan names several sizes of transparent huge pages.
fn names_several(plan: &Plan<'_>) -> bool {
    let mut first = None;
    let mut several = false;
    let mut meet = |page_bytes: u64, via| {
        if via == Via::Thp && page_bytes > arch::PAGE as u64 && page_bytes <= arch::PMD as u64 {
            several |= *first.get_or_insert(page_bytes) != page_bytes;
        }
    };
    for section in (0..plan.section_count()).filter_map(|number| plan.section(number)) {
        meet(section.otherwise, section.otherwise_via);
        let intervals = (0..section.interval_count()).filter_map(|index| plan.interval(&section, index));
        intervals.for_each(|interval| meet(interval.page_bytes, interval.via));
    }
    several
}

fn detours(needs: &Needs, libc: &Object) -> Result<Detours, Refusal> {
    let mut detours = Detours::none();
    if needs.exits {
        detours.add(libc, &wanted_exits())?;
    }
    if needs.exits || needs.memory || needs.files || needs.heap {
        detours.add(libc, &wanted_sandbox())?;
    }
    if needs.memory || needs.files || needs.heap {
        detours.add(libc, &wanted_memory())?;
        let posix = entry::posix_madvise as *const () as usize;
        detours.add(libc, &[wanted(c"posix_madvise", nr::MADVISE, posix)])?;
        detours.add(libc, &wanted_registering())?;
        detours.add(libc, &wanted_for_later())?;
    }
    if needs.memory || needs.heap || needs.frames {
        detours.add(libc, &wanted_locks())?;
        detours.add(libc, &wanted_properties())?;
    }
    if needs.frames {
        detours.add(libc, &wanted_namespaces())?;
        detours.add(libc, &wanted_scheduling())?;
    }
    if needs.heap {
        detours.add(libc, &[wanted(c"brk", nr::BRK, entry::brk as *const () as usize)])?;
    }
    if needs.files {
        watch_objects(&mut detours);
    }
    Ok(detours)
}

/// Watches dlopen through ld.so's hook for debuggers; without the hook, memory that dlopen maps stays as it is.
fn watch_objects(detours: &mut Detours) {
    let hook = c"_dl_debug_state";
    let target = entry::objects_changed as *const () as usize;
    let linker = elf::find(&|object| object.symbol(hook).is_some());
    let found = linker.and_then(|linker| Some((linker, linker.symbol(c"_r_debug")?)));
    let added = found.map(|(linker, state)| {
        files::watch(state.address);
        detours.add(&linker, &[Wanted { name: hook, shape: Shape::Empty, target, optional: false }])
    });
    if !matches!(added, Some(Ok(()))) {
        guest_file::warn(GuestWarning::DlopenUnwatched, None, 0, 0);
    }
}

/// Whether the program contains a sanitizer's runtime that supports only a few address ranges, because it computes from
/// each address where its data about that address lie. When mmap returns an address elsewhere, ThreadSanitizer ends the
/// program, and MemorySanitizer misreads its own data; DataFlowSanitizer, which has the addresses of MemorySanitizer, does
/// not start.
fn has_places_of_its_own() -> bool {
    /// (DataFlowSanitizer's own start has no name that is seen from outside.)
    const NAMES: [&CStr; 3] = [c"__tsan_init", c"__msan_init", c"__dfsan_union_load"];
    elf::find(&|object| NAMES.iter().any(|name| object.symbol(name).is_some())).is_some()
}

/// Whether the program contains LeakSanitizer's runtime, also as a part of AddressSanitizer's. Where it is part of the
/// program, it shows in the function that the runtime asks for.
fn looks_for_leaks() -> bool {
    elf::find_named(&|path, object| {
        object.symbol(c"__lsan_do_leak_check").is_some()
            || path.is_empty() && object.refers_to(c"__lsan_is_turned_off")
    })
    .is_some()
}

/// Whether valgrind runs the program: it ends the program at the first thread that is not made through libc.
fn is_under_valgrind() -> bool {
    elf::find_named(&|path, _| path.windows(11).any(|name| name == b"/vgpreload_")).is_some()
}

/// Whether the plan puts memory into pools.
fn governs_places(plan: &Plan<'_>) -> bool {
    (0..plan.section_count()).filter_map(|number| plan.section(number)).any(|section| section.pool_base != 0)
}

/// # Safety
/// The process has one thread.
unsafe fn govern(plan: Plan<'static>, libc: &Object) -> Result<(), Stop> {
    // An emulator's own threads never touch libc's code; only the program's threads run it, and this is the first of
    // them.
    let emulated = plan.flags().contains(Flags::EMULATED);
    if !emulated && sys::link_count(c"/proc/self/task").is_ok_and(|links| links > 3) {
        return Err(DisabledReason::Threads.into());
    }
    if has_places_of_its_own() && governs_places(&plan) {
        return Err(DisabledReason::Sanitizer.into());
    }
    let needs = Needs::of(&plan);
    if needs.frames && is_under_valgrind() {
        return Err(DisabledReason::Sanitizer.into());
    }
    backing::list_existing(&plan);
    let detours = detours(&needs, libc).map_err(|refusal| {
        say(format_args!("cannot detour {:?}: {}", refusal.name, refusal.reason.name()));
        Stop { reason: refusal.reason, errno: refusal.errno }
    })?;
    if names_several(&plan) {
        thp::several_sizes();
    }
    if needs.sizes {
        thp::read_settings();
        read_clocks_fast();
    }
    let calls = needs.memory || needs.heap || needs.files || needs.frames;
    let installed = tables::install(plan, calls, &child::RESETS);
    installed.map_err(|errno| Stop { reason: DisabledReason::NoMemory, errno: Some(errno) })?;
    // SAFETY: one thread; the targets in `entry` have the signatures of the functions they replace.
    let written = unsafe { detours.write() };
    written.map_err(|errno| Stop { reason: DisabledReason::PatchDenied, errno: Some(errno) })?;
    if let Some(symbol) = libc.symbol(c"__libc_single_threaded") {
        libc::found_one_thread(symbol.address);
    }
    backing::learn(&plan);
    backing::hints::learn_default();
    move_break(libc, needs.heap);
    if needs.hugetlb || needs.frames {
        fork::be_careful();
    }
    scan(&plan, libc);
    backing::place_existing();
    Ok(())
}

/// Finds the kernel's function for reading clocks, where the dynamic linker lists the vDSO.
fn read_clocks_fast() {
    let name = c"__vdso_clock_gettime";
    let kernels = elf::find_named(&|path, object| path.starts_with(b"linux-vdso") && object.symbol(name).is_some());
    if let Some(symbol) = kernels.and_then(|object| object.symbol(name)) {
        // SAFETY: the kernel's own object, and its function of this name.
        unsafe { sys::read_clocks_by(symbol.address) };
    }
}

/// A program that is not position-independent has its heap below, and may keep pointers to it in 32 bits.
const FOUR_GIB: usize = 1 << 32;

/// Makes libc's sbrk work on the pool's heap from now on.
fn move_break(libc: &Object, heap: bool) {
    let Some(symbol) = libc.symbol(c"__curbrk").filter(|_| heap) else { return };
    let known = libc::found_break(symbol.address);
    if !tables::has_heap() {
        return;
    }
    let kernels = sys::brk(0);
    if kernels < FOUR_GIB {
        guest_file::warn(GuestWarning::HeapMoved, None, kernels, 0);
    }
    calls::publish_heap(plan::HEAP.start, plan::HEAP.start);
    // Null: nobody has asked for the break yet, and the first sbrk will.
    if known != 0 {
        libc::set_current_break(plan::HEAP.start);
    }
}

/// Where libc and the library begin, if this process's parent was governed: the parent has recorded their resident
/// pages.
fn told_by_parent(plan: &Plan<'_>, libc: &Object) -> [usize; 2] {
    if !guest_file::has_governed_parent(plan) {
        return [0; 2];
    }
    let library = elf::find(&|object| object.symbol(c"pagelab_begin").is_some());
    [libc.base(), library.map_or(0, |library| library.base())]
}

/// Covers memory that exists already: file mappings, data, the stack; and measures which pages of files were resident.
fn scan(plan: &Plan<'_>, libc: &Object) {
    let concerns = |memory| plan.section_for(memory, usize::MAX as u64).is_some();
    let files = concerns(Memory::File) || concerns(Memory::Data) || concerns(Memory::Stack);
    let residency = plan.flags().contains(Flags::RESIDENCY);
    if !files && !residency {
        return;
    }
    // Where the policy governs files, this time is not measuring; a look at files for their residency alone is.
    let begun = if files { None } else { measure::begin() };
    let mut scan = files::Scan::default();
    let mut files_seen = files::Residency::without(if residency { told_by_parent(plan, libc) } else { [0; 2] });
    let _ = maps::each(&mut |mapping| {
        if residency {
            files_seen.record(mapping);
        }
        scan.visit(mapping);
        true
    });
    measure::end(begun);
}

/// The dynamic linker calls this first of all initialisers (`-z initfirst`). Unit tests don't intercept their own
/// process: there it is a pointer like any other.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

unsafe extern "C" fn constructor(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    // SAFETY: called by the dynamic linker, once.
    unsafe { start(argc, argv, envp) };
}
