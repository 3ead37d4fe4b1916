//! One pass for all sizes and colour counts gives the same results as a separate simulation of each.

mod common;

use common::{distances, filled, lru_faults, noise};
use pagelab_simulate::paging::{Colouring, Curve, Parallel, Sampled, Sampling, Stacks};
use proptest::prelude::*;

/// A trace with loops, repeats and jumps over few or many pages.
fn traces() -> impl Strategy<Value = Vec<u64>> {
    let piece = prop_oneof![
        (0..600_u64, 1..40_u64, 1..4_usize).prop_map(|(first, length, times)| (first..first + length)
            .cycle()
            .take(length as usize * times)
            .collect()),
        proptest::collection::vec(0..50_u64, 1..60),
        proptest::collection::vec((0..3_u64, 0..300_u64).prop_map(|(asid, vpn)| asid << 52 | vpn), 1..60),
        (any::<u64>(), 1..5_usize).prop_map(|(page, times)| vec![page; times]),
    ];
    proptest::collection::vec(piece, 1..30).prop_map(|pieces: Vec<Vec<u64>>| pieces.concat())
}

fn modulo(count: u32) -> impl Fn(u64) -> u64 {
    move |page| (page & ((1 << 52) - 1)) % u64::from(count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn faults_are_those_of_one_simulation_for_each_size(
        trace in traces(),
        counts in proptest::collection::vec(1..20_u32, 1..7),
        piece in 1..700_usize,
    ) {
        let mut stacks = Stacks::new(&Colouring::Modulo, &counts).unwrap();
        for part in trace.chunks(piece) {
            stacks.feed(part);
        }
        let curves = stacks.curves();
        for &count in &counts {
            let curve = curves.iter().find(|curve| curve.colours == count).unwrap();
            let faults = curve.faults();
            prop_assert_eq!(curve.references, trace.len() as u64);
            prop_assert_eq!(faults[0], trace.len() as u64);
            for frames in [1, 2, 3, 5, 8, 13, 16, 17, 20, 40, 150, 1000] {
                let found = *faults.get(frames).unwrap_or(&curve.cold);
                prop_assert_eq!(found, lru_faults(&trace, modulo(count), frames));
            }
            prop_assert_eq!(&curve.filled, &filled(&trace, modulo(count)));
        }
    }
}

fn assert_exact(trace: &[u64], counts: &[u32]) {
    let mut stacks = Stacks::new(&Colouring::Modulo, counts).unwrap();
    stacks.feed(trace);
    for curve in stacks.curves() {
        let (reused, cold) = distances(trace, modulo(curve.colours));
        let used = curve.reused.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        assert_eq!(curve.cold, cold);
        assert_eq!(curve.reused[..used], reused, "{} colours", curve.colours);
    }
}

const ALL: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

#[test]
fn many_pages_and_many_compactions() {
    let skewed: Vec<u64> = noise(1).take(600_000).map(|x| (x % 70_000) * (x >> 40) % 70_000).collect();
    assert_exact(&skewed, &ALL);
}

#[test]
fn alternations_across_batches_and_between_other_references() {
    let mut trace = Vec::new();
    for (nth, x) in noise(7).take(300).enumerate() {
        let (one, other, length) = (x % 40, (x >> 8) % 40, (x >> 16) % if nth % 4 == 0 { 3000 } else { 7 });
        trace.extend((0..length).map(|at| if at % 2 == 0 { one } else { other }));
        if nth == 150 {
            // So long that alternations are no longer looked for.
            trace.extend(noise(8).take(40_000).map(|x| x % 5000));
        }
    }
    assert_exact(&trace, &ALL);
    assert_exact(&trace, &[3, 6, 12]);
    assert_exact(&trace, &[1]);
    let whole = |threads, piece| {
        let mut stacks = Parallel::new(&Colouring::Modulo, &ALL, threads).unwrap();
        trace.repeat(20).chunks(piece).for_each(|part| stacks.feed(part));
        stacks.curves()
    };
    let expected = whole(1, usize::MAX);
    for (threads, piece) in [(1, 1), (1, 1023), (2, 4097), (8, 100_000)] {
        assert_eq!(whole(threads, piece), expected, "{threads} threads, {piece} references at a time");
    }
}

#[test]
fn sweeps_of_every_length_around_the_blocks() {
    for pages in [15_u64, 16, 17, 255, 256, 257, 1024, 4111] {
        let sweep: Vec<u64> = (0..12_000).map(|i| i % pages).collect();
        assert_exact(&sweep, &[1, 2, 4, 6, 12]);
    }
}

/// The page used longest ago is removed by code of its own; here other pages are removed in between.
#[test]
fn sweeps_with_other_pages_in_between() {
    for (every, others) in [(2, 3), (9, 700), (100, 5003), (1000, 1)] {
        let among = |(i, random): (u64, u64)| match random % every {
            0 => 5003 + (random >> 20) % others,
            1 if every > 50 => (random >> 20) % 5003,
            _ => i % 5003,
        };
        let trace: Vec<u64> = (0..60_000).zip(noise(every)).map(among).collect();
        assert_exact(&trace, &ALL);
        assert_exact(&trace, &[1]);
        assert_exact(&trace, &[3, 6]);
    }
}

#[test]
fn all_pages_of_one_colour() {
    let trace: Vec<u64> = noise(2).take(60_000).map(|x| x % 3000 * 256).collect();
    assert_exact(&trace, &ALL);
}

/// Where few references find their page among the most recent ones, the stacks do without a top, until it pays again.
#[test]
fn the_top_goes_and_comes_back() {
    let mut trace = Vec::new();
    for (phase, random) in (0..12).zip(noise(5)) {
        let near = |i: u64| i % 9 * 5 + phase;
        let sweep = |i: u64| i % (3000 + phase);
        let jumps = |i: u64| (i * i) ^ (random % 50_000);
        let length = 3000 + random % 9000;
        match phase % 3 {
            0 => trace.extend((0..length).map(near)),
            1 => trace.extend((0..length).map(sweep)),
            _ => trace.extend((0..length).map(jumps)),
        }
    }
    assert_exact(&trace, &[1, 2, 4, 8, 16]);
    assert_exact(&trace, &[1]);
    assert_exact(&trace, &[3, 6]);
}

/// Above 2^19 slots the hierarchy of counts has one more storey.
#[test]
#[ignore = "slow without optimisation: cargo test --release -p pagelab-simulate -- --ignored"]
fn more_than_a_million_slots() {
    let trace: Vec<u64> = noise(3).take(6_000_000).map(|x| x % 1_500_000).collect();
    assert_exact(&trace, &[1, 2, 4]);
}

/// Faults of every memory of at least `memory` pages, by colour count and frames.
fn from(curves: &[Curve], memory: u64) -> Vec<Vec<u64>> {
    let large = |curve: &Curve| {
        let faults = curve.faults();
        let sizes = memory.div_ceil(u64::from(curve.colours)) as usize..2000;
        sizes.map(|frames| *faults.get(frames).unwrap_or(&curve.cold)).collect()
    };
    curves.iter().map(large).collect()
}

fn assert_exact_from(trace: &[u64], colouring: &Colouring, counts: &[u32], memory: u64, piece: usize) {
    let mut all = Stacks::new(colouring, counts).unwrap();
    let mut large = Stacks::exact_from(colouring, counts, memory).unwrap();
    for part in trace.chunks(piece) {
        all.feed(part);
        large.feed(part);
    }
    let (expected, found) = (all.curves(), large.curves());
    assert_eq!(from(&found, memory), from(&expected, memory), "{counts:?}, {memory} pages");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.references, found.cold), (expected.references, expected.cold));
        assert_eq!(found.filled, expected.filled);
    }
    assert_eq!(large.pages(), all.pages());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn large_memories_have_the_same_faults_where_small_ones_do_not_matter(
        trace in traces(),
        counts in proptest::collection::vec(1..70_u32, 1..7),
        memory in prop_oneof![1..20_u64, 1..2000_u64],
        piece in 1..3000_usize,
        hashed in any::<bool>(),
        parts in 1..5_usize,
    ) {
        let colouring = if hashed { Colouring::PidHashed } else { Colouring::Modulo };
        assert_exact_from(&trace, &colouring, &counts, memory, piece);
        let mut appended = Stacks::exact_from(&colouring, &counts, memory).unwrap();
        for part in trace.chunks(trace.len().div_ceil(parts)) {
            let mut stacks = Stacks::exact_from(&colouring, &counts, memory).unwrap();
            part.chunks(piece).for_each(|some| stacks.feed(some));
            appended.append(&mut stacks);
        }
        let mut whole = Stacks::new(&colouring, &counts).unwrap();
        whole.feed(&trace);
        prop_assert_eq!(from(&appended.curves(), memory), from(&whole.curves(), memory));
        prop_assert_eq!(appended.pages(), whole.pages());
    }
}

/// Few pages for long, then many, then few: batches are kept back, then not, then again.
#[test]
fn small_memories_do_not_matter_to_phases_of_every_kind() {
    let mut trace: Vec<u64> = Vec::new();
    for (nth, x) in (0..).zip(noise(11).take(60)) {
        let (first, span) = (x % 3000, [1, 3, 17, 60, 64, 70, 300, 5000][nth % 8]);
        trace.extend(noise(x).take(1 + (x >> 32) as usize % 9000).map(|y| first + (y % span) * (y >> 40) % span));
        // Pages of one colour.
        trace.extend(noise(x + 1).take(2000).map(|y| first + y % 9 * 64));
    }
    for memory in [2, 8, 63, 64, 256, 1024, 100_000] {
        for counts in [&ALL[..], &[1], &[3, 6, 12, 5], &[4096, 64]] {
            assert_exact_from(&trace, &Colouring::Modulo, counts, memory, 10_000);
        }
    }
    let expected = {
        let mut stacks = Stacks::new(&Colouring::Modulo, &ALL).unwrap();
        (0..8).for_each(|_| stacks.feed(&trace));
        from(&stacks.curves(), 512)
    };
    for threads in 1..4 {
        let mut stacks = Parallel::exact_from(&Colouring::Modulo, &ALL, 512, threads).unwrap();
        (0..8).for_each(|_| trace.chunks(70_001).for_each(|part| stacks.feed(part)));
        assert_eq!(from(&stacks.curves(), 512), expected, "{threads} threads");
    }
}

fn split_as(trace: &[u64], counts: &[u32], parts: usize) -> Stacks {
    let mut whole = Stacks::new(&Colouring::Modulo, counts).unwrap();
    for part in trace.chunks(trace.len().div_ceil(parts)) {
        let mut stacks = Stacks::new(&Colouring::Modulo, counts).unwrap();
        stacks.feed(part);
        whole.append(&mut stacks);
    }
    whole
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn segments_counted_apart_give_the_same_when_appended(trace in traces(), parts in 1..6_usize) {
        let counts = [1, 2, 3, 4, 8];
        let mut whole = Stacks::new(&Colouring::Modulo, &counts).unwrap();
        whole.feed(&trace);
        let mut parted = split_as(&trace, &counts, parts);
        prop_assert_eq!(parted.references(), whole.references());
        prop_assert_eq!(parted.pages(), whole.pages());
        prop_assert_eq!(parted.held(), whole.held());
        for (parted, whole) in parted.curves().iter().zip(whole.curves()) {
            prop_assert_eq!(parted.faults(), whole.faults());
            prop_assert_eq!(&parted.filled, &whole.filled);
        }
    }
}

/// Few pages, and many, with which jobs become longer than the first one.
#[test]
fn several_threads_count_the_same() {
    let skewed = |pages: u64| move |x: u64| (x % pages) * (x >> 40) % pages;
    for (pages, references, threads) in [
        (3000, 5_000_000, 3),
        (90_000, 5_500_000, 2),
        (700_000, 5_000_000, 2),
        (900_000, 4_200_000, 3),
        (800_000, 4_000_000, 4),
    ] {
        let trace: Vec<u64> = noise(7).take(references).map(skewed(pages)).collect();
        let counts = [&[1, 2, 4][..], &[1, 2, 3, 4, 6], &[1]][threads - 2];
        let mut one = Parallel::new(&Colouring::Modulo, counts, 1).unwrap();
        let mut several = Parallel::new(&Colouring::Modulo, counts, threads).unwrap();
        for part in trace.chunks(300_001) {
            one.feed(part);
            several.feed(part);
            several.repeat(3);
            one.repeat(3);
            assert_eq!(one.references(), several.references());
        }
        for _ in 0..2 {
            for (one, several) in one.curves().iter().zip(several.curves()) {
                assert_eq!(one.references, several.references);
                assert_eq!(one.faults(), several.faults());
                assert_eq!(one.filled, several.filled);
            }
            // And on from there.
            one.feed(&trace[..10]);
            several.feed(&trace[..10]);
        }
    }
}

/// Such a rate was 0, by which counts were divided.
#[test]
fn a_rate_at_which_no_page_is_in_the_sample_is_refused() {
    for rate in [0.0, 1e-20, -1.0, f64::NAN, 1.5] {
        let sampling = Sampling { rate, most_pages: None, seed: 1 };
        assert!(Sampled::new(&Colouring::Modulo, &[1], sampling).is_err(), "{rate}");
    }
    let least = Sampling { rate: 2_f64.powi(-64), most_pages: None, seed: 1 };
    assert!(Sampled::new(&Colouring::Modulo, &[1], least).unwrap().epochs()[0].rate > 0.0);
}

#[test]
fn a_sample_of_all_pages_is_exact_and_a_full_sample_lowers_its_rate() {
    let trace: Vec<u64> = noise(8).take(200_000).map(|x| x % 5000).collect();
    let mut whole = Stacks::new(&Colouring::Modulo, &[1, 4]).unwrap();
    whole.feed(&trace);
    let sampled = |rate, most_pages| {
        let sampling = Sampling { rate, most_pages, seed: 1 };
        let mut sampled = Sampled::new(&Colouring::Modulo, &[1, 4], sampling).unwrap();
        sampled.feed(&trace);
        assert_eq!(sampled.references(), 200_000);
        sampled.epochs()
    };
    let all = sampled(1.0, None);
    assert_eq!(all.len(), 1);
    for (sample, curve) in all[0].whole.iter().zip(whole.curves()) {
        assert_eq!(sample.faults(), curve.faults());
    }
    let limited = sampled(1.0, Some(800));
    assert!(limited.len() > 10);
    assert!(limited.is_sorted_by(|a, b| a.rate > b.rate));
    let last = limited.last().unwrap().rate;
    assert!((0.12..0.19).contains(&last), "700 to 800 of 5000 pages are a rate of 0.14 to 0.16, not {last}");
}
