//! The cost of the stock: nanoseconds a page, the median of 31 rounds.
//!
//! `cargo run --release -p pagelab-frames --example stock_speed [CHUNKS]` (default 64: 128 MiB of pages)

use std::hint::black_box;
use std::time::Instant;

use pagelab_frames::strategy::{BinHopping, PageColoring, Random};
use pagelab_frames::{Chunk, Colours, End, List, Run, SlotId, Stock, Strategy, Want};

const COLOURS: u32 = 64;
const ROUNDS: usize = 31;

fn leak<T>(values: impl Iterator<Item = T>) -> &'static mut [T] {
    Box::leak(values.collect::<Vec<_>>().into_boxed_slice())
}

/// A stock of `chunks` huge pages, scattered over 64 GiB.
fn fresh(chunks: u32, indexed: bool) -> Stock<'static> {
    let lists = leak((0..COLOURS).map(|_| List::EMPTY));
    let table = leak((0..chunks).map(|_| None));
    let mut stock = Stock::new(Colours::low_bits(COLOURS).expect("64 colours"), table, lists).expect("room");
    for _ in 0..chunks {
        let number = stock.add_chunk(Box::leak(Box::new(Chunk::new())), 0).expect("room for a chunk");
        fill(&mut stock, number);
    }
    if indexed {
        let room = stock.index_room();
        stock.set_index(Some(leak((0..room).map(|_| 0))));
    }
    stock
}

fn fill(stock: &mut Stock<'_>, number: u32) {
    let base = (u64::from(number) * 7919 % 32_768 + 1) * 512;
    for index in 0..512 {
        stock.add(SlotId::new(number, index), base + u64::from(index), End::Back).expect("a held slot");
    }
}

/// Puts everything back where it was: what the refiller does with new pages.
fn refill(stock: &mut Stock<'_>) {
    while stock.take_empty_run(512).is_some() {}
    for number in 0..stock.chunk_limit() {
        fill(stock, number);
    }
}

/// Nanoseconds a page of taking everything in runs of `window` pages as `strategy` wants them, and of filling up.
fn measure(name: &str, chunks: u32, window: usize, indexed: bool, mut want: impl FnMut(u64) -> Want) {
    let mut stock = fresh(chunks, indexed);
    let pages = u64::from(stock.totals().free);
    let (mut taking, mut filling, mut runs) = (Vec::new(), Vec::new(), 0u64);
    let mut wants = Vec::with_capacity(window);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let (mut vpn, mut placed) = (0u64, 0u64);
        runs = 0;
        while placed < pages * 3 / 4 {
            wants.clear();
            wants.extend((vpn..).take(window).map(&mut want));
            vpn += window as u64;
            let mut rest = &wants[..];
            while !rest.is_empty() {
                let taken = stock.take_run(rest).or_else(|| stock.take_any().map(Run::one));
                let Some(run) = taken else { break };
                stock.emptied(black_box(run));
                rest = &rest[run.len as usize..];
                placed += u64::from(run.len);
                runs += 1;
            }
        }
        taking.push(start.elapsed().as_nanos() as f64 / placed as f64);
        // What is left goes too, so that every round begins alike.
        while let Some(slot) = stock.take_any() {
            stock.emptied(Run::one(slot));
        }
        let start = Instant::now();
        refill(&mut stock);
        filling.push(start.elapsed().as_nanos() as f64 / pages as f64);
    }
    taking.sort_by(f64::total_cmp);
    filling.sort_by(f64::total_cmp);
    println!(
        "{name:<34} window {window:>3}: take {:>6.1} ns/page ({:>5.1} pages a run), fill {:>6.1} ns/page",
        taking[ROUNDS / 2],
        pages as f64 * 0.75 / runs as f64,
        filling[ROUNDS / 2]
    );
}

fn main() {
    let chunks = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(64);
    println!("{chunks} chunks, {COLOURS} colours, three quarters of the pages taken a round");
    for window in [1, 4, 16, 64] {
        let mut colouring = PageColoring::new(COLOURS);
        measure("page-coloring, sequential", chunks, window, false, |vpn| colouring.want(vpn));
    }
    let mut colouring = PageColoring::new(COLOURS);
    measure("page-coloring, scattered addresses", chunks, 16, false, |vpn| {
        colouring.want((vpn / 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 30) + vpn % 16)
    });
    let mut hopping = BinHopping::starting_at(COLOURS, 0);
    measure("bin-hopping", chunks, 1, false, |vpn| hopping.want(vpn));
    let mut random = Random::new(COLOURS, 1);
    measure("random", chunks, 16, false, |vpn| random.want(vpn));
    let mut colouring = PageColoring::new(COLOURS);
    measure("page-coloring, index kept", chunks, 16, true, |vpn| colouring.want(vpn));
    measure("exact, all chunks shuffled", chunks, 16, true, |vpn| {
        let (number, index) = (vpn / 512 * 31 % u64::from(chunks), vpn % 512);
        Want::Frame((number * 7919 % 32_768 + 1) * 512 + index)
    });
}
