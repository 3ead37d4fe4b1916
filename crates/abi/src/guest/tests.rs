use std::vec::Vec;
use std::{panic, vec};

use core::mem::{offset_of, size_of};

use super::*;
use crate::plan::{Memory, StrategyKind, Via};

fn blank() -> Vec<u8> {
    let mut bytes = vec![0; size_of::<GuestFile>()];
    put(&mut bytes, offset_of!(GuestFile, magic), MAGIC);
    put(&mut bytes, offset_of!(GuestFile, version), VERSION);
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

#[test]
fn a_killed_guest_still_has_identity_and_counters() {
    let mut bytes = blank();
    put(&mut bytes, offset_of!(GuestFile, pid), 42);
    put(&mut bytes, offset_of!(GuestFile, state), State::Active.code());
    put(&mut bytes, offset_of!(GuestFile, exe_bytes), 9);
    bytes[offset_of!(GuestFile, exe)..][..9].copy_from_slice(b"/bin/true");
    put(&mut bytes, offset_of!(GuestFile, counters) + Counter::BrkGoverned as usize * 8, 7);
    let report = Report::decode(&bytes).unwrap();
    assert_eq!((report.pid, report.exe.as_str(), report.state), (42, "/bin/true", State::Active));
    assert_eq!(report.counters, [("brk.governed", 7)]);
    assert_eq!((report.placement, report.rusage, report.end_ns), (PlacementMethod::None, None, None));
    assert_eq!(report.disabled, None);
}

#[test]
fn regions_keep_asked_and_measured_apart() {
    let mut bytes = blank();
    let at = offset_of!(GuestFile, regions);
    put(&mut bytes, offset_of!(GuestFile, region_count), 2);
    for (offset, value) in [
        (offset_of!(RegionSlot, memory), Memory::Arenas as u64 + 1),
        (offset_of!(RegionSlot, asked), 2 << 20),
        (offset_of!(RegionSlot, via), Via::Thp as u64),
        (offset_of!(RegionSlot, resident), 3 << 20),
        (offset_of!(RegionSlot, by_size), 1 << 20),
        (offset_of!(RegionSlot, by_size) + 8 * 8, 2 << 20),
        (offset_of!(RegionSlot, whole_touched), 2),
        (offset_of!(RegionSlot, as_asked), 1),
        (offset_of!(RegionSlot, retired_by_size) + 8 * 8, 4 << 20),
        (offset_of!(RegionSlot, retired_whole), 2),
        (offset_of!(RegionSlot, retired_as_asked), 2),
    ] {
        put(&mut bytes, at + offset, value);
    }
    put(&mut bytes, at + size_of::<RegionSlot>() + offset_of!(RegionSlot, memory), REGION_OTHER);
    let report = Report::decode(&bytes).unwrap();
    let [arenas, other] = report.regions.as_slice() else { panic!("{:?}", report.regions) };
    assert_eq!((arenas.memory, arenas.asked, arenas.via), (Some(Memory::Arenas), Some(2 << 20), Some(Via::Thp)));
    assert_eq!(arenas.by_size, [(4096, 1 << 20), (2 << 20, 2 << 20)]);
    assert_eq!(arenas.tiles, Some((2, 1)));
    assert_eq!((arenas.retired_tiles, &arenas.retired_by_size), (Some((2, 2)), &vec![(2 << 20, 4 << 20)]));
    assert_eq!((other.memory, other.asked, other.via, other.tiles), (None, None, None, None));
}

#[test]
fn unfinished_and_foreign_files_are_refused() {
    let mut bytes = blank();
    assert_eq!(Report::decode(&bytes[..100]), Err(DecodeError::Truncated));
    put(&mut bytes, offset_of!(GuestFile, version), 99);
    assert_eq!(Report::decode(&bytes), Err(DecodeError::Version(99)));
    put(&mut bytes, offset_of!(GuestFile, magic), 0);
    assert_eq!(Report::decode(&bytes), Err(DecodeError::NotAGuest));
}

#[test]
fn absurd_counts_and_codes_do_not_lead_out_of_bounds() {
    let bytes: Vec<u8> = blank().iter().enumerate().map(|(at, &b)| if at < 16 { b } else { 0xff }).collect();
    let report = Report::decode(&bytes).unwrap();
    assert_eq!(report.regions.len(), REGION_SLOTS);
    assert_eq!(report.residency.len(), RESIDENCY_SLOTS);
    assert!(report.warnings.is_empty() && report.frames.is_empty());
}

#[test]
fn codes_and_names_are_distinct_and_fit() {
    const { assert!(Counter::ALL.len() <= COUNTER_SLOTS && GuestWarning::ALL.len() <= WARNING_SLOTS) };
    const { assert!(OutOfReach::ALL.len() <= OUT_OF_REACH_SLOTS) };
    let names: std::collections::BTreeSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
    assert_eq!(names.len(), Counter::ALL.len());
    for (code, &counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(Counter::from_code(code as u64), Some(counter));
    }
}

#[test]
fn frame_placement_is_read_by_strategy_and_colour() {
    let mut bytes = blank();
    let slot = offset_of!(GuestFile, frames) + 2 * size_of::<FramesSlot>();
    let counts = slot + offset_of!(FramesSlot, counts);
    for (at, value) in [
        (slot + offset_of!(FramesSlot, kind), StrategyKind::BinHopping as u64 + 1),
        (slot + offset_of!(FramesSlot, colours), 4),
        (counts + offset_of!(FramesCountSlot, requests), 10),
        (counts + offset_of!(FramesCountSlot, placed), 9),
        (counts + offset_of!(FramesCountSlot, unplaced_pages), 1),
        (slot + offset_of!(FramesSlot, out_of_reach) + OutOfReach::File as usize * 8, 4096),
        (slot + offset_of!(FramesSlot, requests_by_colour) + 3 * 8, 2),
        (slot + offset_of!(FramesSlot, placed_by_colour) + 3 * 8, 1),
        (slot + offset_of!(FramesSlot, fallbacks_by_colour) + 3 * 8, 1),
    ] {
        put(&mut bytes, at, value);
    }
    let engine = offset_of!(GuestFile, engine);
    put(&mut bytes, engine + offset_of!(EngineSlot, state), EngineState::Failed.code());
    put(&mut bytes, engine + offset_of!(EngineSlot, failure), EngineFailure::Userfaultfd.code());
    put(&mut bytes, engine + offset_of!(EngineSlot, errno), 1);
    put(&mut bytes, engine + offset_of!(EngineSlot, counts) + offset_of!(EngineCountSlot, nodes), 1);

    let report = Report::decode(&bytes).unwrap();
    let [frames] = report.frames.as_slice() else { panic!("{:?}", report.frames) };
    assert_eq!((frames.number, frames.kind, frames.colours), (2, StrategyKind::BinHopping, 4));
    assert_eq!((frames.counts.requests, frames.counts.placed, frames.counts.unplaced_pages), (10, 9, 1));
    assert_eq!(frames.out_of_reach, [(OutOfReach::File, 4096)]);
    let third = ColourCounts { requests: 2, placed: 1, fallbacks: 1 };
    assert_eq!(
        frames.by_colour,
        [ColourCounts::default(), ColourCounts::default(), ColourCounts::default(), third]
    );
    let engine = report.engine.unwrap();
    assert_eq!(
        (engine.state, engine.failure, engine.errno),
        (EngineState::Failed, EngineFailure::Userfaultfd, Some(1))
    );
    assert_eq!((engine.counts.nodes, engine.counts.moves), (1, 0));
}

#[test]
fn a_process_without_frame_placement_says_nothing_of_it() {
    let report = Report::decode(&blank()).unwrap();
    assert_eq!((report.engine, report.frames.len()), (None, 0));
}
