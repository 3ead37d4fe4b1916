//! Callbacks for each translated block, instruction and access: the hot part.
//!
//! There is one callback for reads and writes. The reason is QEMU 7.2: it calls a write-only callback at reads, too,
//! and a read-only callback at writes instead (tests/trace compares with lackey). It exists with and without the tests
//! of addresses and kinds.

use crate::api::{self, ALL_ACCESSES, Block, CurrentVcpu, Data, Id, Instruction, MemoryInfo, NO_REGISTERS};
use crate::config::{Mode, Window, shared};
use crate::state::{self, INSTRUCTIONS, Own, Thread, active, set_active, several};
use crate::{channel, children};
use pagelab_trace::capture::instructions::{self, Meeting};
use pagelab_trace::{ADDRESS_BITS, Kind, Reference};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The page size, as a shift, in a static that callbacks read directly.
static PAGE_BITS: AtomicU32 = AtomicU32::new(12);
/// All bits of an address but its place in the page.
static PAGE_MASK: AtomicU64 = AtomicU64::new(!0xfff);

/// Sets the page size of the callbacks.
pub fn set_page_bits(bits: u32) {
    PAGE_BITS.store(bits, Relaxed);
    PAGE_MASK.store(u64::MAX << bits, Relaxed);
}

/// No access is longer: a vector register has 64 bytes. Where the emulator divides an access, its parts are shorter.
const LONGEST: u64 = 64;

/// Instruments a block.
pub extern "C" fn translated(_id: Id, block: &Block) {
    if !channel::is_announced() {
        channel::announce(&mut channel::lock());
    }
    let config = &shared().config;
    let all = config.ranges.is_empty() && config.kinds.has(Kind::Load) && config.kinds.has(Kind::Store);
    let count = api::qemu_plugin_tb_n_insns(block);
    if matches!(config.window, Window::Instructions { .. }) {
        // The callback takes the number of instructions for its value.
        let data = ptr::without_provenance_mut(count);
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, counted, NO_REGISTERS, data);
    }
    for instruction in (0..count).filter_map(|index| api::qemu_plugin_tb_get_insn(block, index)) {
        if all {
            instrument::<false>(instruction);
        } else {
            instrument::<true>(instruction);
        }
    }
}

fn instrument<const SOME: bool>(instruction: &Instruction) {
    let config = &shared().config;
    let runs = config.mode == Mode::Runs;
    let meeting = meeting(instruction);
    if meeting != Meeting::None {
        let callback = if meeting == Meeting::Waits { waits } else { meets };
        api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, NO_REGISTERS, ptr::null_mut());
    }
    if config.kinds.has(Kind::Fetch) {
        let (address, size) = (api::qemu_plugin_insn_vaddr(instruction), api::qemu_plugin_insn_size(instruction));
        if config.keeps(address) {
            if address >> ADDRESS_BITS != 0 {
                channel::fail(&format!(
                    "an instruction at {address:#x}: the address has more than {ADDRESS_BITS} bits, which a trace cannot hold"
                ));
            }
            let word = Reference::new(address, Kind::Fetch, size as u32).bits();
            let callback = if runs { fetched_run } else { fetched };
            // The callback takes a packed reference for its value.
            let data = ptr::without_provenance_mut(word as usize);
            api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, NO_REGISTERS, data);
        }
    }
    if config.kinds.has(Kind::Load) || config.kinds.has(Kind::Store) {
        let data = state::alone();
        let callback: api::Accessed = match (runs, meeting) {
            (false, Meeting::Meets) => atomically::<SOME, false>,
            (true, Meeting::Meets) => atomically::<SOME, true>,
            (false, _) => accessed::<SOME>,
            (true, _) if SOME => accessed_run_of_some,
            (true, _) if data.is_null() => accessed_run,
            (true, _) => accessed_run_alone,
        };
        api::qemu_plugin_register_vcpu_mem_cb(instruction, callback, NO_REGISTERS, ALL_ACCESSES, data);
    }
}

/// Bytes of the longest instruction.
const LONGEST_INSTRUCTION: usize = 16;

fn meeting(instruction: &Instruction) -> Meeting {
    let mut copied = [0u8; LONGEST_INSTRUCTION];
    let size = api::qemu_plugin_insn_size(instruction).min(LONGEST_INSTRUCTION);
    // SAFETY: the place has as many bytes as are said. The older interface answers with the address of the instruction's
    // bytes, valid for this call.
    let code = unsafe {
        match api::qemu_plugin_insn_data(instruction, copied.as_mut_ptr().cast(), size) {
            answer if answer <= LONGEST_INSTRUCTION => &copied[..answer],
            address => std::slice::from_raw_parts(ptr::with_exposed_provenance(address), size),
        }
    };
    instructions::meeting(&shared().target, code)
}

/// Before an atomic instruction or a fence.
extern "C" fn meets(mut vcpu: CurrentVcpu, _: Data) {
    if several() {
        let mut thread = state::thread(&mut vcpu);
        thread.lets_go();
        thread.may_have_waited();
    }
}

/// Before an instruction that only waits.
extern "C" fn waits(mut vcpu: CurrentVcpu, _: Data) {
    if several() {
        state::thread(&mut vcpu).may_have_waited();
    }
}

/// An access of an atomic instruction.
extern "C" fn atomically<const SOME: bool, const RUNS: bool>(
    mut vcpu: CurrentVcpu,
    info: MemoryInfo,
    address: u64,
    _: Data,
) {
    let mut thread = state::thread(&mut vcpu);
    let again = thread.again(address);
    if RUNS {
        access_of_run::<SOME>(&mut thread, info, address);
    } else {
        access::<SOME>(&mut thread, info, address);
    }
    if again {
        thread.only_tried_again();
    }
}

/// An access, as a full reference.
extern "C" fn accessed<const SOME: bool>(mut vcpu: CurrentVcpu, info: MemoryInfo, address: u64, _: Data) {
    access::<SOME>(&mut state::thread(&mut vcpu), info, address);
}

#[inline]
fn access<const SOME: bool>(thread: &mut Thread, info: MemoryInfo, address: u64) {
    thread.looks(address, info, |own| is_load(own, info));
    if !thread.counts() || SOME && !shared().config.keeps(address) {
        return;
    }
    let meta = meta(thread.own, info);
    if !SOME || shared().config.kinds.has(Kind::from_code(meta)) {
        if address >> ADDRESS_BITS != 0 {
            too_high(thread, address);
        }
        thread.push(Reference::with_meta(address, meta).bits());
    }
}

/// A trace cannot hold this address; truncated, it would mean another page.
#[cold]
fn too_high(thread: &Thread, address: u64) -> ! {
    channel::fail(&format!(
        "{}: address {address:#x} has more than {ADDRESS_BITS} bits, which a trace cannot hold",
        thread.next_record()
    ))
}

fn is_load(own: &mut Own, info: MemoryInfo) -> bool {
    Kind::from_code(meta(own, info)) == Kind::Load
}

/// Kind and size of an access. Asking the emulator costs two calls, and few accesses differ: the answers are kept.
#[inline]
fn meta(own: &mut Own, info: MemoryInfo) -> u8 {
    let known = &mut own.known[(info ^ info >> 4 ^ info >> 16) as usize % own.known.len()];
    if known.0 != info {
        *known = (info, ask(info));
    }
    known.1
}

#[cold]
fn ask(info: MemoryInfo) -> u8 {
    let (store, shift) = (api::qemu_plugin_mem_is_store(info), api::qemu_plugin_mem_size_shift(info));
    let kind = if store { Kind::Store } else { Kind::Load };
    Reference::new(0, kind, 1 << shift).meta()
}

/// Appends an access to a run, while the process has had only one thread. The emulator translates anew when a second
/// thread begins; this is no requirement, because [`state::pushes_alone`] then returns false.
extern "C" fn accessed_run_alone(vcpu: CurrentVcpu, info: MemoryInfo, address: u64, alone: Data) {
    // SAFETY: blocks with this callback get the value that `state::alone` returned.
    if !is_plain(address) || !unsafe { state::pushes_alone(alone, address) } {
        accessed_run_at_length(vcpu, info, address);
    }
}

/// An access, as part of a run.
extern "C" fn accessed_run(mut vcpu: CurrentVcpu, info: MemoryInfo, address: u64, _: Data) {
    if !is_plain(address) || !state::pushes_at_once(&mut vcpu, address, info) {
        accessed_run_at_length(vcpu, info, address);
    }
}

/// Appends an access to a run, after the work that is due (a new group, a full ring).
#[cold]
#[inline(never)]
extern "C" fn accessed_run_at_length(mut vcpu: CurrentVcpu, info: MemoryInfo, address: u64) {
    access_of_run::<false>(&mut state::thread(&mut vcpu), info, address);
}

/// Appends an access to a run, if its kind and address are requested.
extern "C" fn accessed_run_of_some(mut vcpu: CurrentVcpu, info: MemoryInfo, address: u64, _: Data) {
    access_of_run::<true>(&mut state::thread(&mut vcpu), info, address);
}

/// Whether an access cannot reach into the next page, and a trace can hold its address.
#[inline(always)]
fn is_plain(address: u64) -> bool {
    (address | PAGE_MASK.load(Relaxed)) <= u64::MAX - (LONGEST - 1) && address >> ADDRESS_BITS == 0
}

#[inline(always)]
fn access_of_run<const SOME: bool>(thread: &mut Thread, info: MemoryInfo, address: u64) {
    thread.looks(address, info, |own| is_load(own, info));
    if !thread.counts() || SOME && !shared().config.keeps(address) {
        return;
    }
    if SOME && !shared().config.kinds.has(Kind::from_code(meta(thread.own, info))) {
        return;
    }
    if is_plain(address) {
        thread.push(address);
    } else {
        near_page_end(thread, info, address);
    }
}

/// An access that may reach into the next page, or that a trace cannot hold.
#[cold]
#[inline(never)]
fn near_page_end(thread: &mut Thread, info: MemoryInfo, address: u64) {
    if address >> ADDRESS_BITS != 0 {
        too_high(thread, address);
    }
    let reference = Reference::with_meta(address, meta(thread.own, info));
    push_pages(thread, reference);
}

/// The address of a reference, and of each page behind the first, where it crosses a page's end.
fn push_pages(thread: &mut Thread, reference: Reference) {
    let bits = PAGE_BITS.load(Relaxed);
    thread.push(reference.address());
    for page in reference.page(bits) + 1..=reference.last_byte() >> bits {
        thread.push(page << bits);
    }
}

/// An instruction, as a full reference.
extern "C" fn fetched(mut vcpu: CurrentVcpu, data: Data) {
    let mut thread = state::thread(&mut vcpu);
    if thread.counts() {
        thread.push(data.addr() as u64);
    }
}

/// An instruction, as part of a run.
extern "C" fn fetched_run(mut vcpu: CurrentVcpu, data: Data) {
    let mut thread = state::thread(&mut vcpu);
    if thread.counts() {
        push_pages(&mut thread, Reference::from_bits(data.addr() as u64));
    }
}

/// A block begins: opens and closes a window of instructions, at the precision of a block.
extern "C" fn counted(_: CurrentVcpu, data: Data) {
    let Window::Instructions { first, count } = shared().config.window else { return };
    if children::is_left_out() {
        return;
    }
    let before = INSTRUCTIONS.fetch_add(data.addr() as u64, Relaxed);
    let inside = before >= first && before - first < count;
    if inside != active() {
        set_active(inside);
        if !inside && shared().config.quit {
            state::quit();
        }
    }
}
