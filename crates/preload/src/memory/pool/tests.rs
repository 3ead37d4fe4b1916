//! The pool against a naive model: random calls on real memory. After each call every page must be the program's or
//! not, as in the model, and contain what the program wrote, or zero.

use crate::boundary::arch::PAGE;

use super::anchor::page;

use super::*;
use pagelab_abi::plan::{Interval, Memory, Plan, PlanSpec, RunSpec, SectionSpec, Via};
use std::collections::BTreeMap;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const RW: How = How { prot: c::PROT_RW, flags: c::MAP_PRIVATE | c::MAP_ANONYMOUS, for_arena: false };
const NONE: How = How { prot: c::PROT_NONE, ..RW };

/// A separate pool for each test, at addresses that nothing else uses.
fn pool(number: usize, otherwise: u64, huge: &[(u64, u64)]) -> Pool {
    let mut section = SectionSpec::uniform(Memory::Anon, otherwise, Via::Thp);
    section.intervals =
        huge.iter().map(|&(start, end)| Interval { start, end, page_bytes: 2 << 20, via: Via::Thp }).collect();
    let bytes = PlanSpec { sections: vec![section], ..PlanSpec::default() }.encode(&RunSpec::default()).unwrap();
    let plan = Plan::parse(bytes.leak()).unwrap();
    let section = plan.section_for(Memory::Anon, 0).unwrap();
    Pool::new(Layout::new(plan, section, 0x5000_0000_0000 + (number << 40), 1 << 34))
}

fn put(addr: usize, value: u32) {
    // SAFETY: the word lies in the test's own mapped memory.
    unsafe { core::ptr::write_volatile(addr as *mut u32, value) };
}

fn get(addr: usize) -> u32 {
    // SAFETY: the word lies in the test's own mapped memory.
    unsafe { core::ptr::read_volatile(addr as *const u32) }
}

/// The program's pages, each with what the program wrote there.
#[derive(Default)]
struct Model(BTreeMap<usize, u32>);

impl Model {
    fn check(&self, pool: &Pool) {
        for (&page, &value) in &self.0 {
            assert!(pool.used.covers(Span::new(page, page + PAGE)));
            assert_eq!(get(page), value, "page {page:x}");
        }
        assert_eq!(pool.used.bytes(), self.0.len() * PAGE, "nothing else is the program's");
        let mut at = 0;
        while let Some(spare) = pool.spare.next_after(at) {
            assert!(!pool.used.overlaps(spare), "spare memory is nobody's");
            at = spare.end;
        }
    }

    fn give(&mut self, span: Span) {
        for page in (span.start..span.end).step_by(PAGE) {
            assert_eq!(get(page), 0, "new memory at {page:x} reads zero");
            let value = page as u32 | 1;
            put(page, value);
            assert_eq!(self.0.insert(page, value), None, "handed out twice: {page:x}");
        }
    }

    fn take(&mut self, span: Span) {
        self.0.retain(|page, _| !(span.start..span.end).contains(page));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn step(pool: &mut Pool, model: &mut Model, live: &mut Vec<Span>, random: &mut Random) {
    let choice = random.below(10);
    if live.is_empty() || choice < 4 {
        let pages = if random.below(3) == 0 { 1 + random.below(900) } else { 1 + random.below(40) };
        let at = pool.map(pages * PAGE, RW, None).unwrap();
        let span = Span::new(at, at + pages * PAGE);
        model.give(span);
        return live.push(span);
    }
    let index = random.below(live.len());
    let span = live[index];
    let pages = span.len() / PAGE;
    let (from, len) = (random.below(pages), 1 + random.below(pages));
    let part = Span::new(span.start + from * PAGE, (span.start + (from + len) * PAGE).min(span.end));
    match choice {
        4 | 5 => {
            pool.unmap(span).unwrap();
            model.take(span);
            live.swap_remove(index);
        }
        6 => {
            pool.unmap(part).unwrap();
            model.take(part);
            live.swap_remove(index);
            let rest = [Span::new(span.start, part.start), Span::new(part.end, span.end)];
            live.extend(rest.into_iter().filter(|rest| !rest.is_empty()));
        }
        7 => {
            let new_len = (1 + random.below(2 * pages + 4)) * PAGE;
            let at = pool.remap(span, new_len, true).unwrap();
            let kept = span.len().min(new_len);
            let values: Vec<u32> = (0..kept).step_by(PAGE).map(|offset| model.0[&(span.start + offset)]).collect();
            model.take(span);
            model.0.extend(values.iter().enumerate().map(|(page, &value)| (at + page * PAGE, value)));
            model.give(Span::new(at + kept, at + new_len));
            live[index] = Span::new(at, at + new_len);
        }
        8 => {
            pool.protect(part, c::PROT_NONE, -1).unwrap();
            pool.protect(part, c::PROT_RW, -1).unwrap();
        }
        _ => {
            pool.advise(part, c::MADV_DONTNEED).unwrap();
            model.0.range_mut(part.start..part.end).for_each(|(_, value)| *value = 0);
        }
    }
}

fn play(number: usize, otherwise: u64, huge: &[(u64, u64)]) {
    for seed in 0..6 {
        let mut pool = pool(number * 8 + seed, otherwise, huge);
        let (mut model, mut live, mut random) = (Model::default(), Vec::new(), Random(seed as u64));
        for _ in 0..120 {
            step(&mut pool, &mut model, &mut live, &mut random);
            model.check(&pool);
        }
        for span in live {
            pool.unmap(span).unwrap();
            model.take(span);
        }
        model.check(&pool);
        pool.remove_anchor();
        assert_eq!(pool.spare.bytes(), 0, "an empty pool holds nothing back");
        assert_eq!(mapped_inside(pool.bounds()), 0);
    }
}

fn mapped_inside(bounds: Span) -> usize {
    let mut bytes = 0;
    let _ = maps::each(&mut |mapping| {
        bytes += mapping.span.and(bounds).len();
        true
    });
    bytes
}

#[test]
fn it_is_the_naive_pool_with_base_pages() {
    play(0, 4096, &[]);
}

#[test]
fn it_is_the_naive_pool_with_huge_tiles() {
    play(1, 2 << 20, &[]);
}

#[test]
fn it_is_the_naive_pool_with_a_mosaic() {
    play(2, 4096, &[(2 << 20, 4 << 20), (6 << 20, 10 << 20)]);
}

#[test]
fn a_tile_is_mapped_whole_and_goes_whole() {
    let mut pool = pool(24, 2 << 20, &[]);
    let first = pool.map(PAGE, RW, None).unwrap();
    assert_eq!(mapped_inside(pool.bounds()), 2 * MIB);
    let second = pool.map(3 * PAGE, RW, None).unwrap();
    assert_eq!((second, mapped_inside(pool.bounds())), (first + PAGE, 2 * MIB));
    pool.unmap(Span::new(first, first + PAGE)).unwrap();
    pool.unmap(Span::new(second, second + 3 * PAGE)).unwrap();
    pool.remove_anchor();
    assert_eq!(mapped_inside(pool.bounds()), 0);
}

#[test]
fn an_emptied_tile_is_unmapped_and_comes_in_base_pages_when_it_is_emptied_again_and_again() {
    let mut pool = pool(25, 2 << 20, &[]);
    for round in 0..8 {
        let at = pool.map(PAGE, RW, None).unwrap();
        assert_eq!(get(at), 0);
        put(at, 7);
        let tile = Span::new(at, at + 2 * MIB);
        assert!(round < 2 || pool.churn.expects(tile) == (huge_bytes(tile) == 0), "round {round}");
        pool.unmap(Span::new(at, at + PAGE)).unwrap();
        assert_eq!(mappings(tile).0, 0, "nothing stays mapped");
    }
    let at = pool.map(PAGE, RW, None).unwrap();
    put(at, 7);
    std::thread::sleep(std::time::Duration::from_millis(25));
    pool.map(PAGE, RW, None).unwrap();
    assert_eq!(huge_bytes(Span::new(at, at + 2 * MIB)), 2 * MIB, "it lives, so it is collapsed");
    assert_eq!(get(at), 7);
}

/// Regression: the next block got the rest of the tile, and with it the program's settings for the block before.
#[test]
fn only_the_block_itself_grows_into_what_was_stretched_with_it() {
    let mut pool = pool(36, 2 << 20, &[]);
    let first = pool.map(3 * MIB, RW, None).unwrap();
    pool.map(PAGE, RW, Some(first + 3 * MIB)).unwrap();
    pool.advise(Span::new(first, first + 3 * MIB), c::MADV_DONTFORK).unwrap();
    let moved = pool.remap(Span::new(first, first + 3 * MIB), 5 * MIB, true).unwrap();
    let block = Span::new(moved, moved + 5 * MIB);
    let next = pool.map(PAGE, RW, None).unwrap();
    assert!(!(block.end..block.end + MIB).contains(&next), "the rest of its last tile is not for others");
    let wanted = block.end + 8 * PAGE;
    assert_eq!(pool.map(PAGE, RW, Some(wanted)), Ok(wanted), "unless they insist");
    let around = Span::new(wanted - PAGE, wanted + PAGE);
    assert!(!crate::boundary::mapping::is_within_one(around), "and then it is mapped anew");
    assert_eq!(pool.remap(block, block.len() + PAGE, false), Ok(moved));
}

#[test]
fn guard_pages_share_no_tile_with_others() {
    let mut pool = pool(26, 2 << 20, &[]);
    let small = pool.map(PAGE, RW, None).unwrap();
    let guard = pool.map(PAGE, NONE, None).unwrap();
    assert_ne!(small / (2 * MIB), guard / (2 * MIB));
    assert!(!pool.is_plain(Span::new(guard, guard + PAGE)));
}

#[test]
fn hints_are_taken_where_they_are_free() {
    let mut pool = pool(27, 4096, &[]);
    let wanted = pool.bounds().start + 5 * MIB;
    assert_eq!(pool.map(PAGE, RW, Some(wanted)), Ok(wanted));
    assert_eq!(pool.map(PAGE, RW, Some(wanted)), Ok(pool.bounds().start));
}

#[test]
fn arenas_open_by_whole_tiles() {
    let mut pool = pool(28, 2 << 20, &[]);
    let how = How { flags: RW.flags | c::MAP_NORESERVE, for_arena: true, ..NONE };
    let at = pool.map(2 * ARENA_BYTES, how, None).unwrap();
    assert_eq!(at % ARENA_BYTES, 0);
    pool.unmap(Span::new(at + ARENA_BYTES, at + 2 * ARENA_BYTES)).unwrap();
    pool.protect(Span::new(at, at + 33 * PAGE), c::PROT_RW, -1).unwrap();
    put(at + 2 * MIB - PAGE, 1);
    pool.protect(Span::new(at + 33 * PAGE, at + 34 * PAGE), c::PROT_RW, -1).unwrap();
    let open = |pool: &mut Pool| pool.arenas.heap(at).map(|(heap, _)| heap.open_bytes());
    assert_eq!(open(&mut pool), Some(2 * MIB));
    pool.protect(Span::new(at + 34 * PAGE, at + 3 * MIB), c::PROT_RW, -1).unwrap();
    assert_eq!(open(&mut pool), Some(4 * MIB));
}

#[test]
fn what_somebody_else_mapped_is_left_alone() {
    let mut pool = pool(30, 4096, &[]);
    let taken = pool.bounds().start;
    let flags = RW.flags | c::MAP_FIXED_NOREPLACE;
    // SAFETY: the addresses belong to this test, and nothing is mapped there.
    unsafe { sys::mmap(taken, PAGE, c::PROT_RW, flags, -1, 0) }.unwrap();
    put(taken, 9);
    let at = pool.map(PAGE, RW, None).unwrap();
    assert!(at > taken && get(taken) == 9);
}

/// The anchor's mapping: one page without access, enough for the kernel to keep the page tables of an empty pool.
fn anchor_of(pool: &Pool) -> Vec<Span> {
    let mut found = Vec::new();
    let _ = maps::each(&mut |mapping| {
        if !mapping.span.and(pool.bounds()).is_empty() && !mapping.read && !mapping.write {
            found.push(mapping.span);
        }
        true
    });
    found
}

#[test]
fn an_emptied_pool_keeps_its_page_tables_and_all_its_room() {
    let mut pool = pool(31, 4096, &[]);
    let start = pool.bounds().start;
    let at = pool.map(PAGE, RW, None).unwrap();
    assert_eq!(anchor_of(&pool), [], "what the program has is enough");
    pool.unmap(Span::new(at, at + PAGE)).unwrap();
    assert_eq!(anchor_of(&pool), [page(start + 2 * MIB - PAGE)], "in the same page of entries");
    // It is in the way, so it goes, and comes back at an address that is not handed out for long.
    let all = Span::new(start, start + 16 * MIB);
    assert_eq!(pool.map(all.len(), RW, None), Ok(start));
    put(start + 2 * MIB - PAGE, 7);
    assert_eq!(anchor_of(&pool), []);
    pool.unmap(all).unwrap();
    assert_eq!(anchor_of(&pool), [page(start + (1 << 30) - PAGE)]);
    // The program chooses the anchor's very page.
    pool.prepare(page(start + (1 << 30) - PAGE)).unwrap();
    assert_eq!(anchor_of(&pool), []);
}

#[test]
fn pools_that_empty_again_and_again_lose_nothing() {
    let (bounds, mut random) = (2 * MIB as u64, Random(5));
    let mut pool = pool(32, 4096, &[(bounds, 2 * bounds), (1022 << 20, 1026 << 20)]);
    for round in 0..200 {
        let mut model = Model::default();
        let mut live = Vec::new();
        for _ in 0..1 + random.below(3) {
            let pages = [1, 30, 600, 2000][random.below(4)];
            let hint = pool.bounds().start + [0, 1 << 30, (1 << 30) - PAGE, 3 * MIB][random.below(4)];
            let at = pool.map(pages * PAGE, RW, Some(hint).filter(|_| round % 2 == 1)).unwrap();
            let span = Span::new(at, at + pages * PAGE);
            model.give(span);
            live.push(span);
        }
        model.check(&pool);
        for span in live {
            pool.unmap(span).unwrap();
            model.take(span);
            model.check(&pool);
        }
        let held = anchor_of(&pool);
        assert!(held.iter().map(|span| span.len()).sum::<usize>() <= PAGE, "one page: {held:x?}");
    }
}

/// Number of mappings inside `span`, and whether one covers all of it.
fn mappings(span: Span) -> (usize, bool) {
    let (mut count, mut covered) = (0, false);
    let _ = maps::each(&mut |mapping| {
        count += usize::from(!mapping.span.and(span).is_empty());
        covered |= mapping.span.and(span) == span;
        true
    });
    (count, covered)
}

fn huge_bytes(span: Span) -> usize {
    let mut bytes = 0;
    let mut add = |run: Span, huge| bytes += if huge { run.len() } else { 0 };
    crate::given_back::scan::Pagemap::open().unwrap().each(span, &mut add).unwrap();
    bytes
}

/// Regression: a block that grew by moving ended as several mappings, which no page could cover, in tiles cut anywhere.
#[test]
fn tiles_stay_whole_when_blocks_grow_past_each_other() {
    let mut pool = pool(33, 2 << 20, &[]);
    let mut blocks: Vec<Span> = (0..4)
        .map(|_| {
            let at = pool.map(50 * PAGE, RW, None).unwrap();
            Span::new(at, at + 50 * PAGE)
        })
        .collect();
    let mut touched = [0; 4];
    while blocks[3].len() < 24 * MIB {
        for (number, block) in blocks.iter_mut().enumerate() {
            let pages = block.len() / PAGE;
            let at = pool.remap(*block, (pages + pages / 8 + 1) * PAGE, true).unwrap();
            *block = Span::new(at, at + (pages + pages / 8 + 1) * PAGE);
            (touched[number]..block.len() / PAGE)
                .for_each(|page| put(at + page * PAGE, (page * 4 + number) as u32));
            touched[number] = block.len() / PAGE;
        }
    }
    for (number, block) in blocks.iter().enumerate() {
        assert_eq!(block.start % (2 * MIB), 0);
        let whole = Span::new(block.start, block.end.next_multiple_of(2 * MIB));
        assert!(mappings(whole).1, "one mapping, to the end of its last tile");
        let kept = (0..touched[number]).all(|page| get(block.start + page * PAGE) == (page * 4 + number) as u32);
        assert!(kept, "block {number} holds what was written");
        assert_eq!(huge_bytes(whole), whole.len(), "block {number}");
    }
}

#[test]
fn a_block_that_grows_in_place_stays_one_mapping() {
    for (number, page_bytes) in [(34, 4096), (35, 2 << 20)] {
        let mut pool = pool(number, page_bytes, &[]);
        let first = pool.map(3 * MIB, RW, None).unwrap();
        let wall = pool.map(PAGE, RW, Some(first + 3 * MIB)).unwrap();
        let moved = pool.remap(Span::new(first, first + 3 * MIB), 5 * MIB, true).unwrap();
        assert!(moved > wall);
        put(moved, 1);
        assert_eq!(pool.remap(Span::new(moved, moved + 5 * MIB), 9 * MIB, false), Ok(moved));
        assert_eq!(pool.remap(Span::new(moved, moved + 9 * MIB), 7 * MIB + PAGE, false), Ok(moved));
        assert_eq!(pool.remap(Span::new(moved, moved + 7 * MIB + PAGE), 11 * MIB, false), Ok(moved));
        put(moved + 11 * MIB - PAGE, 2);
        assert_eq!(mappings(Span::new(moved, moved + 11 * MIB)), (1, true));
        assert_eq!((get(moved), get(moved + 7 * MIB + PAGE)), (1, 0));
    }
}
