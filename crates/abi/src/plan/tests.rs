use std::vec;
use std::vec::Vec;

use super::*;

const MIB: u64 = 1 << 20;

fn interval(start: u64, end: u64, page_bytes: u64) -> Interval {
    Interval { start, end, page_bytes, via: Via::Thp }
}

fn sample() -> PlanSpec {
    let mut heap = SectionSpec::uniform(Memory::Heap, BASE_PAGE, Via::Thp);
    heap.intervals = vec![interval(0, 64 * MIB, 2 * MIB), interval(128 * MIB, 130 * MIB, 64 << 10)];
    let mut large = SectionSpec::uniform(Memory::Anon, 2 * MIB, Via::Hugetlb);
    large.at_least = MIB;
    large.fetch = Fetch::Prefault;
    large.rule = 1;
    let mut range = SectionSpec::uniform(Memory::Range, KERNEL, Via::Thp);
    range.range = Some((0x1000, 0x9000));
    let small = SectionSpec::uniform(Memory::Anon, BASE_PAGE, Via::Thp);
    PlanSpec {
        flags: Flags::INHERIT_FORK | Flags::MEASURE,
        sections: vec![heap, large, range, small],
        run_dir: b"/run/pagelab/0123456789".to_vec(),
    }
}

#[test]
fn what_was_written_is_read() {
    let spec = sample();
    let bytes = spec.encode().unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    assert_eq!(plan.flags(), spec.flags);
    assert_eq!(plan.run_dir(), spec.run_dir);
    assert_eq!(plan.section_count() as usize, spec.sections.len());
    for (number, wanted) in spec.sections.iter().enumerate() {
        let section = plan.section(number as u32).unwrap();
        assert!(wanted.matches(&section), "{section:?} is not {wanted:?}");
        let read: Vec<_> = (0..section.interval_count()).map(|i| plan.interval(&section, i).unwrap()).collect();
        assert_eq!(read, wanted.intervals);
        assert_eq!(plan.interval(&section, section.interval_count()), None);
    }
    assert_eq!(plan.section(spec.sections.len() as u32), None);
}

#[test]
fn the_first_section_that_matches_wins() {
    let bytes = sample().encode().unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    assert_eq!(plan.section_for(Memory::Anon, MIB).unwrap().otherwise, 2 * MIB);
    assert_eq!(plan.section_for(Memory::Anon, MIB - 1).unwrap().otherwise, BASE_PAGE);
    assert_eq!(plan.section_for(Memory::Stack, MIB), None);
}

#[test]
fn pieces_cover_the_pool_without_gaps() {
    let bytes = sample().encode().unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    let heap = plan.section_for(Memory::Heap, 0).unwrap();
    let mut offset = 0;
    let mut seen = Vec::new();
    while offset < 200 * MIB {
        let piece = plan.piece(&heap, offset);
        assert!(piece.start <= offset && offset < piece.end);
        assert_eq!(plan.piece(&heap, piece.end - 1), piece);
        seen.push((piece.start, piece.page_bytes));
        offset = piece.end;
    }
    assert_eq!(seen, [(0, 2 * MIB), (64 * MIB, BASE_PAGE), (128 * MIB, 64 << 10), (130 * MIB, BASE_PAGE)]);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample().encode().unwrap();
    for len in 0..bytes.len() {
        assert!(Plan::parse(&bytes[..len]).is_err(), "accepted {len} of {} bytes", bytes.len());
    }
}

#[test]
fn foreign_files_and_other_versions_are_refused() {
    let mut bytes = sample().encode().unwrap();
    bytes[8] = 9;
    assert_eq!(Plan::parse(&bytes).unwrap_err(), PlanError::Version(9));
    bytes[0] = b'x';
    assert_eq!(Plan::parse(&bytes).unwrap_err(), PlanError::NotAPlan);
}

/// Whatever single byte is damaged, reading stays in bounds: it is refused, or every accessor still answers.
#[test]
fn damaged_plans_never_lead_out_of_bounds() {
    let bytes = sample().encode().unwrap();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let Ok(plan) = Plan::parse(&damaged) else { continue };
            for number in 0..plan.section_count() {
                let section = plan.section(number).unwrap();
                for offset in [0, MIB, 64 * MIB, u64::MAX - 1] {
                    let piece = plan.piece(&section, offset);
                    assert!(piece.start <= offset && offset < piece.end);
                }
            }
            let _ = plan.run_dir();
        }
    }
}

#[test]
fn unaligned_and_overlapping_intervals_are_not_written() {
    for bad in [
        vec![interval(4096, 2 * MIB, 2 * MIB)],
        vec![interval(0, 4 * MIB, 2 * MIB), interval(2 * MIB, 6 * MIB, 2 * MIB)],
        vec![interval(2 * MIB, 2 * MIB, 2 * MIB)],
        vec![interval(0, 12288, 12288)],
    ] {
        let mut spec = sample();
        spec.sections[0].intervals = bad;
        assert!(matches!(spec.encode(), Err(PlanError::Invalid("interval", _))));
    }
}
