//! Memory that exists before the library: data, bss, the stack, and what the dynamic linker mapped.
//!
//! The library lists this memory before it makes mappings of its own, and places it when the engine can run. There is
//! one thread then, and it waits while its memory moves. Memory that the handler itself uses is left out: the library's
//! own data, and the data of strategies' modules.

pub mod remap;

use core::sync::atomic::{AtomicUsize, Ordering};

use pagelab_abi::guest::OutOfReach;
use pagelab_abi::plan::{Memory, Plan};

use crate::boundary::arch::PAGE;
use crate::boundary::elf;
use crate::boundary::maps::{self, Mapping};
use crate::boundary::span::Span;
use crate::boundary::sys::task;
use crate::frames::place::module;
use crate::frames::pool::chunks::SLOTS;
use crate::frames::report::tally;
use crate::frames::threads::registration;
use crate::frames::threads::requests::{self, Kind};
use crate::frames::threads::startup::is_ready;
use crate::state::plan;

use super::{areas, hints};

/// Most mappings listed.
const ROOM: usize = 256;
/// File mappings larger than this are not copied.
const LARGEST_COPY: usize = 64 << 20;
/// How far the stack can grow down where there is no limit, bytes.
const DEEPEST_STACK: usize = 1 << 30;
const LIMIT_STACK: usize = 3;

struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    /// [`Memory`] code; plus [`FILE`] for pages of a file.
    kind: AtomicUsize,
}

const FILE: usize = 1 << 8;

static LIST: [Entry; ROOM] =
    [const { Entry { start: AtomicUsize::new(0), end: AtomicUsize::new(0), kind: AtomicUsize::new(0) } }; ROOM];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// An address in the library's own data.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Lists the existing memory. Called before the library maps anything that stays.
pub fn list(plan: &Plan<'_>) {
    if !plan.governs_frames() {
        return;
    }
    let mut data_end = 0;
    // On the stack: a mapped buffer would be listed, too.
    let mut buffer = [0u8; 3 * PAGE];
    let _ = maps::each_with(&mut buffer, &mut |mapping| {
        if let Some(kind) = kind_of(mapping, &mut data_end) {
            let count = COUNT.load(Ordering::Relaxed);
            if let Some(entry) = LIST.get(count) {
                entry.start.store(mapping.span.start, Ordering::Relaxed);
                entry.end.store(mapping.span.end, Ordering::Relaxed);
                entry.kind.store(kind as usize | if mapping.is_file() { FILE } else { 0 }, Ordering::Relaxed);
                COUNT.store(count + 1, Ordering::Relaxed);
            }
        }
        true
    });
}

fn kind_of(mapping: &Mapping<'_>, data_end: &mut usize) -> Option<Memory> {
    if !mapping.write || mapping.exec || mapping.shared {
        return None;
    }
    match maps::kind_of(mapping, *data_end) {
        Some(Memory::Data) => {
            *data_end = mapping.span.end;
            Some(Memory::Data)
        }
        Some(kind) => Some(kind),
        None if mapping.name == b"[heap]" => Some(Memory::Heap),
        None => (mapping.name.is_empty() && !mapping.is_file()).then_some(Memory::Anon),
    }
}

/// Places the listed memory that has a strategy.
pub fn place() {
    // Looked up now, because later it would take the dynamic linker's lock.
    keep_out();
    for entry in LIST.iter().take(COUNT.load(Ordering::Relaxed)) {
        let span = Span::new(entry.start.load(Ordering::Relaxed), entry.end.load(Ordering::Relaxed));
        let code = entry.kind.load(Ordering::Relaxed);
        let Some(memory) = Memory::from_code((code & !FILE) as u64) else { continue };
        let Some(section) = plan::section_for(memory, span.len()).filter(|section| section.governs_frames()) else {
            continue;
        };
        each_outside(span, &mut |part| place_one(part, memory, code & FILE != 0, section.frames as u8));
    }
}

/// The writable segments of the library and of modules: start and end.
static KEPT_OUT: [[AtomicUsize; 2]; 32] = [const { [const { AtomicUsize::new(0) }; 2] }; 32];

/// Calls `visit` for each part of `span` that is not data of the library or of a module: the handler uses them while it
/// brings pages in.
pub fn each_outside(span: Span, visit: &mut dyn FnMut(Span)) {
    let mut at = span.start;
    while at < span.end {
        let all = KEPT_OUT.iter().map(|[start, end]| (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)));
        let next = all.filter(|(start, end)| *end > at && *start < span.end).min();
        let part = Span::new(at, next.map_or(span.end, |(start, _)| start.max(at)));
        if !part.is_empty() {
            visit(part);
        }
        at = next.map_or(span.end, |(_, end)| end);
    }
}

/// Finds those segments. Called by the constructor (the search takes the dynamic linker's lock), and again when the
/// modules are known.
pub fn keep_out() {
    let mut places = KEPT_OUT.iter();
    elf::each(&mut |_, segments| {
        let mut writable = [Span::new(0, 0); 8];
        let mut count = 0;
        for (place, segment) in writable.iter_mut().zip(segments.filter(|segment| segment.write)) {
            *place = segment.memory;
            count += 1;
        }
        let holds = |addr: usize| writable.iter().any(|span| (span.start..span.end).contains(&addr));
        if holds((&raw const OWN) as usize) || module::tables().any(holds) {
            for (span, [start, end]) in writable.iter().take(count).zip(&mut places) {
                start.store(span.start, Ordering::Relaxed);
                end.store(span.end, Ordering::Relaxed);
            }
        }
    });
}

fn place_one(span: Span, memory: Memory, is_file: bool, code: u8) {
    let governed = if memory == Memory::Stack { with_growth(span) } else { span };
    if !areas::set(governed, code) || !is_ready() {
        return;
    }
    let number = u32::from(code) - 1;
    if !is_file {
        // The zero page may have the right colour by chance, but a write replaces it by another page.
        hints::unshare(span, &mut [0; SLOTS]);
        if registration::govern(span).is_ok() {
            let _ = requests::ask(Kind::Remap, span);
        }
    } else if span.len() > LARGEST_COPY || requests::ask(Kind::Replace, span).is_err() {
        areas::clear(span);
        tally::out_of_reach(number, OutOfReach::File, span.len());
    }
}

/// The stack with the addresses into which it can grow.
fn with_growth(stack: Span) -> Span {
    let limit = task::soft_limit(LIMIT_STACK).map_or(DEEPEST_STACK, |limit| limit as usize).min(DEEPEST_STACK);
    Span::new(stack.end.saturating_sub(limit.next_multiple_of(PAGE)).min(stack.start), stack.end)
}
