//! Placement at the process's end, mapping by mapping.

use pagelab_abi::guest::OutOfReach;
use pagelab_abi::plan::Memory;

use crate::boundary::maps::Mapping;
use crate::boundary::span::Span;
use crate::boundary::sys::Errno;
use crate::frames::areas;
use crate::frames::registrable::is_placeable;
use crate::frames::running::is_running;
use crate::frames::threads::requests::{self, Kind};
use crate::given_back::regions::Place;
use crate::given_back::scan::Pagemap as Scan;
use crate::state::plan;

use super::tally;

/// At exit: counts where the pages of one mapping are.
pub fn census(place: &Place, mapping: &Mapping<'_>, scan: &Scan) {
    if !is_running() {
        return;
    }
    areas::each(mapping.span, &mut |part, number| match number {
        Some(_) if is_placeable(mapping) => {
            each_kind(part, &mut |part, kind| {
                let _ = requests::ask(kind, part);
            });
        }
        _ => beyond_reach(place, mapping, part, scan),
    });
}

fn each_kind(span: Span, visit: &mut dyn FnMut(Span, Kind)) {
    match plan::layout_at(span.start) {
        None => visit(span, Kind::Census),
        Some(layout) => layout.each(span, &mut |piece, part| {
            visit(part, if piece.backing.is_tiled() { Kind::CensusTiled } else { Kind::Census });
        }),
    }
}

/// Counts memory that the policy names and the engine cannot reach.
fn beyond_reach(place: &Place, mapping: &Mapping<'_>, part: Span, scan: &Scan) {
    let memory = place.memory.checked_sub(1).and_then(Memory::from_code);
    let section = memory.and_then(|memory| plan::section_for(memory, mapping.span.len()));
    let Some(number) = section.and_then(|section| section.strategy()) else { return };
    let why = match memory {
        _ if mapping.shared => OutOfReach::Shared,
        _ if mapping.is_file() => OutOfReach::File,
        Some(Memory::Stack) => OutOfReach::StackInUse,
        Some(Memory::Anon | Memory::Data) => OutOfReach::Early,
        _ => OutOfReach::Other,
    };
    let mut bytes = 0;
    let _: core::result::Result<(), Errno> = scan.each(part, &mut |run, _| bytes += run.len());
    tally::out_of_reach(number, why, bytes);
}
