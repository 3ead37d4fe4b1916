//! Random operations on a stock and on a plain map of slots.

use std::collections::BTreeMap;
use std::vec::Vec;
use std::{boxed::Box, vec};

use proptest::prelude::{Just, Strategy as Draw, any, prop_oneof};
use proptest::{prop_assert, prop_assert_eq, proptest};

use crate::stock::{CHUNK_SLOTS, Chunk, Counts, End, List, Refused, Run, SlotId, State, Stock};
use crate::strategy::Want;
use crate::{Colours, stock};

const ROOM: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    AddChunk { base: u64, shuffled: bool, holes: u32 },
    RemoveChunk(u32),
    TakeRun { wants: Vec<Want>, fate: u8 },
    Take(u32, u8),
    TakeNear(u32, u8),
    TakeFrame(u64, u8),
    TakeAny(u8),
    TakeThis(u32, u8),
    Return { most: u32, base: u64, front: bool },
    Surplus { keep: u32, most: u32 },
    Refresh(u32, u64),
    Recolour(u8),
    Index(bool),
    Ask(u32, u32),
}

fn frame() -> impl Draw<Value = u64> {
    prop_oneof![1u64..3000, Just(stock::FRAME_LIMIT - 1)]
}

fn wants() -> impl Draw<Value = Vec<Want>> {
    let consecutive = (0u32..16, 1usize..40)
        .prop_map(|(first, len)| (0..len as u32).map(|i| Want::Colour((first + i) % 16)).collect());
    let frames = (frame(), 1u64..20).prop_map(|(first, len)| (first..first + len).map(Want::Frame).collect());
    let one = prop_oneof![(0u32..17).prop_map(Want::Colour), frame().prop_map(Want::Frame), Just(Want::Any)];
    prop_oneof![consecutive, frames, proptest::collection::vec(one, 0..6)]
}

fn operation() -> impl Draw<Value = Op> {
    let slot = 0..(ROOM * CHUNK_SLOTS + 5) as u32;
    prop_oneof![
        2 => (0u64..1500, any::<bool>(), 0u32..3).prop_map(|(base, shuffled, holes)| Op::AddChunk { base, shuffled, holes }),
        1 => (0..ROOM as u32 + 1).prop_map(Op::RemoveChunk),
        8 => (wants(), 0u8..3).prop_map(|(wants, fate)| Op::TakeRun { wants, fate }),
        2 => (0u32..17, 0u8..3).prop_map(|(colour, fate)| Op::Take(colour, fate)),
        2 => (0u32..17, 0u8..3).prop_map(|(colour, fate)| Op::TakeNear(colour, fate)),
        2 => (frame(), 0u8..3).prop_map(|(pfn, fate)| Op::TakeFrame(pfn, fate)),
        1 => (0u8..3).prop_map(Op::TakeAny),
        1 => (slot.clone(), 0u8..3).prop_map(|(slot, fate)| Op::TakeThis(slot, fate)),
        4 => (1u32..80, 0u64..1500, any::<bool>()).prop_map(|(most, base, front)| Op::Return { most, base, front }),
        2 => (0u32..60, 1u32..600).prop_map(|(keep, most)| Op::Surplus { keep, most }),
        2 => (slot, frame()).prop_map(|(slot, pfn)| Op::Refresh(slot, pfn)),
        1 => (0u8..3).prop_map(Op::Recolour),
        1 => any::<bool>().prop_map(Op::Index),
        2 => (0u32..17, 1u32..3000).prop_map(|(colour, times)| Op::Ask(colour, times)),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    Held(Option<u64>),
    Empty,
    Free(u64),
}

/// A stock beside its model, a map with every slot's state and frame.
struct Pair {
    stock: Stock<'static>,
    model: BTreeMap<u32, Page>,
    colours: Colours,
    next_address: usize,
}

fn leak<T: Clone>(value: T, count: usize) -> &'static mut [T] {
    Box::leak(vec![value; count].into_boxed_slice())
}

fn function(number: u8) -> Colours {
    match number {
        0 => Colours::low_bits(16).unwrap(),
        1 => Colours::low_bits(7).unwrap(),
        _ => Colours::masked([0x11, 0x102, 0x44]).unwrap(),
    }
}

impl Pair {
    fn new() -> Pair {
        let chunks: Vec<Option<&'static mut Chunk>> = (0..ROOM).map(|_| None).collect();
        let colours = function(0);
        let stock = Stock::new(colours, Box::leak(chunks.into_boxed_slice()), leak(List::EMPTY, 16)).unwrap();
        Pair { stock, model: BTreeMap::new(), colours, next_address: 0x7000_0000_0000 }
    }

    fn colour(&self, slot: SlotId) -> Option<u32> {
        match self.model.get(&slot.0)? {
            Page::Free(pfn) => Some(self.colours.of(*pfn)),
            _ => None,
        }
    }

    fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.colours.count() as usize];
        for colour in self.model.keys().filter_map(|slot| self.colour(SlotId(*slot))) {
            counts[colour as usize] += 1;
        }
        counts
    }

    fn satisfies(&self, slot: u32, want: Want) -> bool {
        match (self.model.get(&slot), want) {
            (Some(Page::Free(pfn)), Want::Colour(colour)) => self.colours.of(*pfn) == colour,
            (Some(Page::Free(pfn)), Want::Frame(wanted)) => *pfn == wanted,
            (Some(Page::Free(_)), Want::Any) => true,
            _ => false,
        }
    }

    fn can(&self, want: Want) -> bool {
        self.model.keys().any(|slot| self.satisfies(*slot, want))
    }

    /// What the engine does with taken slots: their pages go, come back, or stay in work.
    fn settle(&mut self, run: Run, fate: u8) {
        for slot in run.slots() {
            let page = self.model.get_mut(&slot.0).unwrap();
            *page = match (fate, *page) {
                (0, _) => Page::Empty,
                (1, Page::Free(pfn)) => Page::Free(pfn),
                (_, Page::Free(pfn)) => Page::Held(Some(pfn)),
                (_, Page::Empty) => Page::Held(None),
                (_, held) => held,
            };
        }
        match fate {
            0 => self.stock.emptied(run),
            1 => self.stock.give_back(run),
            _ => {}
        }
    }

    fn expect(&mut self, taken: Option<SlotId>, want: Want, fate: u8) {
        assert_eq!(taken.is_some(), self.can(want), "{want:?}");
        if let Some(slot) = taken {
            assert!(self.satisfies(slot.0, want));
            assert_eq!(self.stock.state(slot), Some(State::Held));
            self.settle(Run::one(slot), fate);
        }
    }

    fn add_chunk(&mut self, base: u64, shuffled: bool, holes: u32) {
        let full = self.stock.chunk_count() as usize == ROOM;
        let result = self.stock.add_chunk(Box::leak(Box::new(Chunk::new())), self.next_address);
        assert_eq!(result.err(), full.then_some(Refused::Full));
        let Ok(number) = result else { return };
        assert_eq!(self.stock.chunk_address(number), Some(self.next_address));
        self.next_address += 2 << 20;
        for index in 0..CHUNK_SLOTS as u32 {
            let slot = SlotId::new(number, index);
            let place = if shuffled { u64::from(index * 211 % 512) } else { u64::from(index) };
            let page = match index % 5 {
                0 if holes == 1 => Page::Empty,
                1 if holes == 2 => Page::Held(None),
                _ => Page::Free(base + place + 1),
            };
            match page {
                Page::Empty => self.stock.emptied(Run::one(slot)),
                Page::Held(_) => assert_eq!(self.stock.add(slot, 0, End::Back), Err(Refused::Frame)),
                Page::Free(pfn) => self.stock.add(slot, pfn, End::Back).unwrap(),
            }
            assert!(self.model.insert(slot.0, page).is_none());
        }
    }

    fn remove_chunk(&mut self, number: u32) {
        let slots = SlotId::new(number, 0).0..SlotId::new(number, 511).0 + 1;
        let pages: Vec<Page> = self.model.range(slots.clone()).map(|(_, page)| *page).collect();
        let can = !pages.is_empty() && !pages.iter().any(|page| matches!(page, Page::Held(_)));
        assert_eq!(self.stock.remove_chunk(number).is_ok(), can);
        if can {
            self.model.retain(|slot, _| !slots.contains(slot));
        }
    }

    fn come_back(&mut self, most: u32, base: u64, front: bool) {
        let Some(run) = self.stock.take_empty_run(most) else {
            assert!(!self.model.values().any(|page| *page == Page::Empty));
            return;
        };
        assert!((1..=most).contains(&run.len));
        for slot in run.slots() {
            assert_eq!(self.model.insert(slot.0, Page::Held(None)), Some(Page::Empty));
            let pfn = base + u64::from(slot.0) + 1;
            if slot.0.is_multiple_of(7) {
                continue;
            }
            self.stock.add(slot, pfn, if front { End::Front } else { End::Back }).unwrap();
            self.model.insert(slot.0, Page::Free(pfn));
        }
    }

    fn surplus(&mut self, keep: u32, most: u32) {
        let before = self.counts();
        let Some(run) = self.stock.take_surplus(keep, most) else {
            assert!(before.iter().all(|count| *count <= keep));
            return;
        };
        assert!((1..=most).contains(&run.len));
        for slot in run.slots() {
            assert!(self.colour(slot).is_some_and(|colour| before[colour as usize] > keep));
        }
        self.settle(run, 0);
        assert!(self.counts().iter().zip(before).all(|(after, before)| *after >= keep.min(before)));
    }

    fn refresh(&mut self, slot: SlotId, pfn: u64) {
        let was_free = matches!(self.model.get(&slot.0), Some(Page::Free(_)));
        assert_eq!(self.stock.refresh(slot, pfn).is_ok(), was_free);
        if was_free {
            self.model.insert(slot.0, Page::Free(pfn));
        }
    }

    fn recolour(&mut self, number: u8) {
        self.colours = function(number);
        let lists = leak(List::EMPTY, self.colours.count() as usize);
        self.stock.recolour(self.colours, lists).unwrap();
    }

    fn take_this(&mut self, slot: SlotId, fate: u8) {
        let can = matches!(self.model.get(&slot.0), Some(Page::Free(_) | Page::Empty));
        assert_eq!(self.stock.take_this(slot), can);
        if can {
            // An empty slot has no page to give back: it stays held.
            self.settle(Run::one(slot), fate);
        }
    }

    fn take_run(&mut self, wants: &[Want], fate: u8) {
        let run = self.stock.take_run(wants);
        assert_eq!(run.is_some(), wants.first().is_some_and(|want| self.can(*want)));
        let Some(run) = run else { return };
        assert!(run.len >= 1 && run.len as usize <= wants.len());
        assert!(run.slot.index() + run.len <= CHUNK_SLOTS as u32);
        assert!(run.slots().zip(wants).all(|(slot, want)| self.satisfies(slot.0, *want)));
        self.settle(run, fate);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::AddChunk { base, shuffled, holes } => self.add_chunk(*base, *shuffled, *holes),
            Op::RemoveChunk(number) => self.remove_chunk(*number),
            Op::TakeRun { wants, fate } => self.take_run(wants, *fate),
            Op::Take(colour, fate) => {
                let taken = self.stock.take(*colour);
                self.expect(taken, Want::Colour(*colour), *fate);
            }
            Op::TakeNear(colour, fate) => {
                let taken = self.stock.take_near(*colour);
                self.expect(taken, Want::Any, *fate);
            }
            Op::TakeFrame(pfn, fate) => {
                let taken = self.stock.take_frame(*pfn);
                self.expect(taken, Want::Frame(*pfn), *fate);
            }
            Op::TakeAny(fate) => {
                let taken = self.stock.take_any();
                self.expect(taken, Want::Any, *fate);
            }
            Op::TakeThis(slot, fate) => self.take_this(SlotId(*slot), *fate),
            Op::Return { most, base, front } => self.come_back(*most, *base, *front),
            Op::Surplus { keep, most } => self.surplus(*keep, *most),
            Op::Refresh(slot, pfn) => self.refresh(SlotId(*slot), *pfn),
            Op::Recolour(number) => self.recolour(*number),
            Op::Ask(colour, times) => (0..*times).for_each(|_| self.stock.ask(*colour)),
            Op::Index(on) => {
                let room = self.stock.index_room();
                let had = self.stock.has_index();
                let old = self.stock.set_index(on.then(|| leak(u64::MAX, room)));
                assert_eq!((old.is_some(), self.stock.has_index()), (had, *on));
            }
        }
    }

    /// Goals never exceed the stock's size, and a shortage agrees with the counts.
    fn compare_goals(&self, counts: &[u32]) {
        let colours = counts.len() as u32;
        for pages in [0, 5, 512, 4096] {
            let goals: Vec<u32> = (0..colours).map(|colour| self.stock.goal(colour, pages)).collect();
            assert!(goals.iter().sum::<u32>() <= pages.max(colours));
            assert!(goals.iter().all(|goal| *goal <= (4 * pages / colours).max(1)));
            let short = goals.iter().zip(counts).position(|(goal, count)| count * 2 < *goal);
            assert_eq!(self.stock.short_colour(pages, 2), short.map(|colour| colour as u32));
        }
    }

    fn compare(&self) {
        self.stock.validate().unwrap();
        let mut totals = Counts::default();
        for (slot, page) in &self.model {
            let slot = SlotId(*slot);
            let (state, frame) = (self.stock.state(slot).unwrap(), self.stock.frame(slot));
            match page {
                Page::Free(pfn) => assert_eq!((state, frame), (State::Free, Some(*pfn))),
                Page::Held(pfn) => assert_eq!((state, frame), (State::Held, *pfn)),
                Page::Empty => assert_eq!((state, frame), (State::Empty, None)),
            }
            match page {
                Page::Free(_) => totals.free += 1,
                Page::Held(_) => totals.held += 1,
                Page::Empty => totals.empty += 1,
            }
        }
        assert_eq!(self.stock.totals(), totals);
        assert_eq!(self.stock.empty_count(), totals.empty);
        assert_eq!(self.stock.chunk_count() as usize * CHUNK_SLOTS, self.model.len());
        let counts: Vec<u32> = (0..self.colours.count()).map(|colour| self.stock.count(colour)).collect();
        assert_eq!(counts, self.counts());
        self.compare_goals(&counts);
        let mut from = SlotId(0);
        let mut seen = 0;
        while let Some(run) = self.stock.next_free(from) {
            assert!(run.slots().all(|slot| self.satisfies(slot.0, Want::Any)));
            (seen, from) = (seen + run.len, SlotId(run.slot.0 + run.len));
        }
        assert_eq!(seen, totals.free);
    }
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 60, ..Default::default() })]
    #[test]
    fn it_is_the_naive_stock(ops in proptest::collection::vec(operation(), 1..60)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.compare();
        }
        prop_assert!(pair.stock.chunk_count() as usize <= ROOM);
        prop_assert_eq!(pair.stock.chunk_address(ROOM as u32), None);
    }
}
