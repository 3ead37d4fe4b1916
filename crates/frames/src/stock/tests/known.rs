//! Known answers: the order in which pages come, and the faults that the validator finds.

use std::boxed::Box;
use std::vec::Vec;

use crate::Colours;
use crate::stock::{Chunk, Counts, End, FRAME_LIMIT, List, Refused, Run, SlotId, State, Stock};
use crate::strategy::{BinHopping, PageColoring, Strategy, Want};

fn stock(colours: u32, chunks: usize) -> Stock<'static> {
    let table: Vec<Option<&'static mut Chunk>> = (0..chunks).map(|_| None).collect();
    let lists = std::vec![List::EMPTY; colours as usize];
    let colours = Colours::low_bits(colours).unwrap();
    Stock::new(colours, Box::leak(table.into_boxed_slice()), Box::leak(lists.into_boxed_slice())).unwrap()
}

/// A chunk cut from a huge page: consecutive frames.
fn huge_page(stock: &mut Stock<'static>, base: u64) -> u32 {
    let number = stock.add_chunk(Box::leak(Box::default()), 0x1000_0000).unwrap();
    for index in 0..512 {
        stock.add(SlotId::new(number, index), base + u64::from(index), End::Back).unwrap();
    }
    number
}

fn wanted(strategy: &mut impl Strategy, pages: core::ops::Range<u64>) -> Vec<Want> {
    pages.map(|vpn| strategy.want(vpn)).collect()
}

#[test]
fn page_colouring_takes_whole_runs() {
    let mut stock = stock(64, 1);
    huge_page(&mut stock, 512);
    let mut strategy = PageColoring::new(64);
    for first in (0x1000..0x1200).step_by(16) {
        let wants = wanted(&mut strategy, first..first + 16);
        let run = stock.take_run(&wants).unwrap();
        assert_eq!(run.len, 16, "page {first:#x}");
        assert_eq!(stock.frame(run.slot).unwrap() % 64, first % 64);
        stock.emptied(run);
    }
    assert_eq!(stock.totals(), Counts { free: 0, empty: 512, held: 0 });
    assert_eq!(stock.take_run(&[Want::Any]), None);
}

#[test]
fn runs_that_start_in_the_middle_of_the_colours_are_found() {
    let mut stock = stock(64, 2);
    huge_page(&mut stock, 512);
    huge_page(&mut stock, 2048);
    // The last slot of colour 60 has only four slots behind it; others have sixteen.
    for _ in 0..12 {
        let run = stock.take_run(&wanted(&mut PageColoring::new(64), 60..76)).unwrap();
        assert_eq!(run.len, 16);
        stock.emptied(run);
    }
    stock.validate().unwrap();
}

#[test]
fn a_run_may_be_as_long_as_a_chunk_and_no_longer() {
    let mut stock = stock(16, 2);
    huge_page(&mut stock, 512);
    huge_page(&mut stock, 1024);
    let wants = wanted(&mut PageColoring::new(16), 0..1024);
    assert_eq!(stock.take_run(&wants), Some(Run { slot: SlotId(0), len: 512 }));
    assert_eq!(stock.take_run(&wants[512..]), Some(Run { slot: SlotId(512), len: 512 }));
}

#[test]
fn bin_hopping_gets_its_bins_in_fault_order() {
    // ALLOC, section 2: each page from the bin after the last one's.
    let mut stock = stock(16, 1);
    huge_page(&mut stock, 512);
    let mut strategy = BinHopping::starting_at(16, 14);
    for (order, vpn) in [900u64, 7, 7000, 3, 3, 12].into_iter().enumerate() {
        let run = stock.take_run(&[strategy.want(vpn)]).unwrap();
        assert_eq!(stock.frame(run.slot).unwrap() % 16, (14 + order as u64) % 16);
        stock.emptied(run);
    }
}

#[test]
fn single_pages_come_from_what_came_back() {
    let mut stock = stock(16, 1);
    huge_page(&mut stock, 512);
    let slot = stock.take(3).unwrap();
    assert_eq!(slot, SlotId(3), "fresh chunks are used from their beginning");
    stock.emptied(Run::one(slot));
    let target = stock.take_empty_run(8).unwrap();
    assert_eq!(target, Run { slot, len: 1 });
    stock.add(slot, 99 * 16 + 3, End::Front).unwrap();
    assert_eq!(stock.take(3), Some(slot));
    assert_eq!(stock.frame(slot), Some(99 * 16 + 3), "a held slot's frame is still known");
    stock.give_back(Run::one(slot));
    assert_eq!(stock.state(slot), Some(State::Free));
}

#[test]
fn a_missing_colour_is_replaced_by_its_richest_neighbour() {
    let mut stock = stock(64, 1);
    huge_page(&mut stock, 512);
    for colour in [31, 30, 33, 32] {
        while let Some(slot) = stock.take(colour) {
            stock.emptied(Run::one(slot));
        }
    }
    for _ in 0..3 {
        let near = stock.take_near(32).unwrap();
        assert!((24..=40).contains(&(stock.frame(near).unwrap() % 64)));
        stock.emptied(Run::one(near));
    }
    for colour in 0..64 {
        while let Some(slot) = stock.take(colour).filter(|_| colour != 2) {
            stock.emptied(Run::one(slot));
        }
    }
    assert_eq!(
        stock.take_near(32).map(|slot| stock.frame(slot).unwrap() % 64),
        Some(2),
        "any, if no neighbour has one"
    );
}

#[test]
fn exact_frames_are_found_with_and_without_an_index() {
    for indexed in [false, true] {
        let mut stock = stock(16, 4);
        if indexed {
            let room = stock.index_room();
            stock.set_index(Some(Box::leak(std::vec![0; room].into_boxed_slice())));
        }
        huge_page(&mut stock, 4096);
        assert_eq!(stock.has_index(), indexed);
        assert_eq!(stock.find(4095), None);
        let slot = stock.take_frame(4100).unwrap();
        assert_eq!((slot, stock.find(4100)), (SlotId(4), None));
        let wants: Vec<Want> = (4200..4210).map(Want::Frame).collect();
        assert_eq!(stock.take_run(&wants), Some(Run { slot: SlotId(104), len: 10 }));
        stock.validate().unwrap();
    }
}

#[test]
fn an_index_that_fills_up_gives_way_to_searching() {
    let mut stock = stock(16, 4);
    stock.set_index(Some(Box::leak(std::vec![0; 600].into_boxed_slice())));
    huge_page(&mut stock, 4096);
    assert!(!stock.has_index(), "512 frames do not go into 512 places");
    assert_eq!(stock.find(4100), Some(SlotId(4)));
    let room = stock.index_room();
    assert!(room >= 1024);
    stock.set_index(Some(Box::leak(std::vec![0; room].into_boxed_slice())));
    huge_page(&mut stock, 8192);
    assert!(stock.has_index());
    assert_eq!(stock.find(8200), Some(SlotId(512 + 8)));
    stock.validate().unwrap();
    assert!(stock.set_index(None).is_some());
}

#[test]
fn surplus_leaves_every_colour_what_it_shall_keep() {
    let mut stock = stock(16, 4);
    for base in [4096, 4608, 5120, 5632] {
        huge_page(&mut stock, base);
    }
    // Modulo with one colour: pages of all other colours accumulate.
    while let Some(slot) = stock.take(5) {
        stock.emptied(Run::one(slot));
    }
    let (mut released, mut calls) = (0, 0);
    while let Some(run) = stock.take_surplus(10, 512) {
        stock.emptied(run);
        (released, calls) = (released + run.len, calls + 1);
    }
    assert_eq!((released, stock.totals().free), (15 * 128 - 150, 150));
    assert!(calls < 200, "runs, not single pages: {calls} calls");
    assert_eq!(stock.spare_chunk(0, 0), Some(0), "whole chunks become empty, not all of them a little");
}

#[test]
fn chunks_come_and_go() {
    let mut stock = stock(16, 2);
    let first = huge_page(&mut stock, 512);
    let second = huge_page(&mut stock, 1024);
    assert_eq!(stock.add_chunk(Box::leak(Box::default()), 0), Err(Refused::Full));
    let slot = stock.take(0).unwrap();
    assert_eq!(stock.remove_chunk(first).err(), Some(Refused::State), "a page is being worked on");
    assert_eq!((stock.spare_chunk(0, 512), stock.spare_chunk(0, 511)), (Some(second), None));
    stock.emptied(Run::one(slot));
    assert_eq!(stock.spare_chunk(0, 511), Some(first));
    let (_, address) = stock.remove_chunk(first).unwrap();
    assert_eq!(address, 0x1000_0000);
    assert_eq!(stock.chunk_counts(first), None);
    assert_eq!(stock.totals(), Counts { free: 512, empty: 0, held: 0 });
    assert_eq!(huge_page(&mut stock, 2048), first, "numbers are used again");
    assert_eq!(stock.address(SlotId::new(second, 3)), Some(0x1000_3000));
    stock.validate().unwrap();
}

#[test]
fn nonsense_is_refused() {
    let mut stock = stock(16, 1);
    let number = stock.add_chunk(Box::leak(Box::default()), 0).unwrap();
    let slot = SlotId::new(number, 0);
    assert_eq!(stock.add(slot, 0, End::Back), Err(Refused::Frame));
    assert_eq!(stock.add(slot, FRAME_LIMIT, End::Back), Err(Refused::Frame));
    assert_eq!(stock.add(SlotId(5000), 7, End::Back), Err(Refused::State));
    stock.give_back(Run::one(slot));
    assert_eq!(stock.state(slot), Some(State::Held), "there was no page to give back");
    stock.add(slot, 7, End::Back).unwrap();
    assert_eq!(stock.add(slot, 7, End::Back), Err(Refused::State));
    assert_eq!(stock.refresh(slot, 0), Err(Refused::Frame));
    assert_eq!(stock.take(16), None);
    assert_eq!(stock.take_run(&[]), None);
    assert_eq!(stock.take_run(&[Want::Colour(99)]), None);
    stock.emptied(Run { slot: SlotId(510), len: 9 });
    stock.validate().unwrap();
    let few: &'static mut [List] = Box::leak(std::vec![List::EMPTY; 3].into_boxed_slice());
    assert!(matches!(Stock::new(Colours::low_bits(4).unwrap(), &mut [], few), Err(Refused::Lists)));
}

#[test]
fn the_validator_sees_what_is_broken() {
    type Damage = fn(&mut Stock<'static>);
    let damages: [(&str, Damage); 6] = [
        ("the length of a list", |stock| stock.lists[3].count += 1),
        ("the end of a list", |stock| stock.lists[3].tail = 0),
        ("a link back", |stock| stock.slot_mut(SlotId(19)).unwrap().prev = 35),
        ("the totals", |stock| stock.totals.free -= 1),
        ("the map of free slots", |stock| stock.slot_mut(SlotId(19)).unwrap().set_held()),
        ("the colour of a slot", |stock| stock.slot_mut(SlotId(19)).unwrap().set_page(520, 3)),
    ];
    for (what, damage) in damages {
        let mut stock = stock(16, 1);
        huge_page(&mut stock, 512);
        stock.validate().unwrap();
        damage(&mut stock);
        assert_eq!(stock.validate().unwrap_err().what, what);
    }
}

#[test]
fn goals_are_even_before_anything_was_asked_for() {
    let mut stock = stock(64, 1);
    assert!((0..64).all(|colour| stock.goal(colour, 512) == 8));
    assert_eq!(stock.short_colour(512, 4), Some(0));
    huge_page(&mut stock, 512);
    assert_eq!(stock.short_colour(512, 1), None);
    assert_eq!((stock.goal(64, 512), stock.is_short(64, 512, 1)), (0, false), "there is no such colour");
}

#[test]
fn goals_follow_the_requests_up_to_four_even_shares() {
    let mut stock = stock(64, 1);
    for _ in 0..2000 {
        stock.ask(3);
        stock.ask(35);
        stock.validate().unwrap();
    }
    // (2,000 + 1,024/64) of (4,000 + 1,024), which is more than 4 of 64.
    assert_eq!([3, 35, 4].map(|colour| stock.goal(colour, 4096)), [256, 256, 4096 * 16 / 5024]);
    // ... and is forgotten when others are requested.
    for request in 0..100_000 {
        stock.ask(request % 2 + 10);
    }
    stock.validate().unwrap();
    assert_eq!([10, 11].map(|colour| stock.goal(colour, 4096)), [256, 256]);
    assert!([3, 35].iter().all(|colour| stock.goal(*colour, 4096) <= 8));
    assert!((0..64).map(|colour| stock.goal(colour, 4096)).sum::<u32>() <= 4096);
}

#[test]
fn a_colour_is_short_when_it_runs_down() {
    let mut stock = stock(64, 1);
    huge_page(&mut stock, 512);
    for left in (0..8).rev() {
        let slot = stock.take(5).unwrap();
        stock.emptied(Run::one(slot));
        assert_eq!(stock.is_short(5, 512, 4), left < 2, "{left} left");
        assert_eq!(stock.short_colour(512, 1), Some(5));
    }
}

#[test]
fn a_colour_runs_out_when_requests_go_on_as_of_late() {
    let mut stock = stock(64, 1);
    assert!(!stock.runs_out(1_000_000), "nothing was asked for");
    huge_page(&mut stock, 512);
    (0..64).for_each(|colour| stock.ask(colour));
    // There are eight pages of each colour, and one in 64 requests takes one.
    assert_eq!([512, 513].map(|requests| stock.runs_out(requests)), [false, true]);
    (0..64).for_each(|_| stock.ask(5));
    // Now 65 of 128 requests are for one colour: 8 × 128 / 65 is 15.8.
    assert_eq!([15, 16].map(|requests| stock.runs_out(requests)), [false, true]);
}

#[test]
fn more_colours_than_pages_have_no_goal_unless_they_are_asked_for() {
    let mut stock = stock(2048, 1);
    assert_eq!(stock.short_colour(512, 1), None);
    for _ in 0..1000 {
        stock.ask(2047);
    }
    assert_eq!((stock.goal(2047, 512), stock.short_colour(512, 1)), (1, Some(2047)));
}
