//! Chains of pages of one cache colour against spread pages: the measurement of `pagelab doctor --probe-colours`.
//!
//! Only measures: it prints every sample, and the sets of pages that conflict by timing whatever their frame numbers
//! are. `pagelab.machine.colours` draws the conclusions.

mod chain;
mod clock;
mod conflict;
mod pool;

use crate::rng::Rng;
use chain::Kind;
use conflict::{Classes, Search};
use pool::{ColourFunction, Pool};

/// Latency of chains of pages of one cache colour against spread pages (root: needs frame numbers)
#[derive(clap::Args)]
pub struct Args {
    /// Page colours of the cache: size / ways / page
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    colours: u32,
    /// Ways of the cache
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ways: u32,
    /// Colours of the cache above it (1: the first-level cache, whose sets a page fills)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    inner_colours: u32,
    /// Ways of the cache above it
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    inner_ways: u32,
    /// XOR masks over frame-number bits in place of the low bits: bit i of the colour is the parity under mask i
    #[arg(long, value_delimiter = ',', value_parser = parse_mask)]
    masks: Vec<u64>,
    /// Lengths of the chains in pages
    #[arg(long, value_delimiter = ',', required = true)]
    chain_pages: Vec<u32>,
    /// Rounds; each measures every kind of chain once, in random order
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Dependent loads in each timed piece; a sample is the median of five pieces
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    loads: u32,
    /// Sets of pages that conflict by timing to look for
    #[arg(long, default_value_t = 3)]
    classes: u32,
    /// Pages of the pool that the chains are taken from
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    pool_pages: u32,
    /// Pages among which conflicting ones are looked for
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    candidates: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One measured chain.
struct Sample {
    round: u32,
    chain_pages: u32,
    kind: Kind,
    ns_per_load: f64,
}

/// Measures and prints one JSON document (`pagelab.colour-chase/1`).
pub fn run(args: &Args) -> Result<(), String> {
    if args.candidates > args.pool_pages {
        return Err(format!("--candidates {} exceeds --pool-pages {}", args.candidates, args.pool_pages));
    }
    let colour = ColourFunction::new(args.colours, &args.masks)?;
    let mut rng = Rng::new(args.seed);
    let mut pool = Pool::populate(args.pool_pages as usize)?;
    let search = Search {
        ways: args.ways as usize,
        pages: (args.colours * args.ways) as usize,
        inner_pages: args.inner_colours as usize * args.inner_ways as usize,
        reach: (args.ways + args.inner_ways) as usize,
        classes: args.classes as usize,
    };
    let candidates = rng.sample(pool.len(), args.candidates as usize);
    let found = search.run(&mut pool, &candidates, &mut rng);
    let samples = measure(args, &mut pool, &colour, &found, &mut rng);
    print(args, &pool, &candidates, &found, &samples);
    Ok(())
}

/// Every kind of chain at every length, once a round. Rounds are blocks: drift changes all kinds of a block alike.
fn measure(args: &Args, pool: &mut Pool, colour: &ColourFunction, found: &Classes, rng: &mut Rng) -> Vec<Sample> {
    let by_colour = pool.by_colour(colour);
    // Masks have no order, so they do not give the inner cache's colours.
    let inner = if args.masks.is_empty() { args.inner_colours } else { 1 };
    let mut samples = Vec::new();
    for round in 0..args.rounds {
        let mut order: Vec<(u32, Kind)> =
            args.chain_pages.iter().flat_map(|&pages| Kind::ALL.map(|kind| (pages, kind))).collect();
        rng.shuffle(&mut order);
        for (chain_pages, kind) in order {
            let chosen = match kind {
                Kind::Same => chain::of_one_colour(&by_colour, chain_pages as usize, rng),
                Kind::Spread => chain::spread(&by_colour, inner, chain_pages as usize, rng),
                Kind::Conflict => chain::of_one_class(&found.classes, chain_pages as usize, rng),
            };
            if let Some(pages) = chosen {
                let ns_per_load = chain::time(pool, &pages, args.loads as usize, rng);
                samples.push(Sample { round, chain_pages, kind, ns_per_load });
            }
        }
    }
    samples
}

fn print(args: &Args, pool: &Pool, candidates: &[usize], found: &Classes, samples: &[Sample]) {
    let frames = |pages: &[usize]| join(pages.iter().map(|&page| pool.frame(page).to_string()));
    let classes = join(found.classes.iter().map(|class| format!("[{}]", frames(class))));
    let samples = join(samples.iter().map(|one| {
        format!(
            r#"{{"round":{},"chain_pages":{},"kind":"{}","ns_per_load":{:.4}}}"#,
            one.round,
            one.chain_pages,
            one.kind.name(),
            one.ns_per_load
        )
    }));
    println!(
        concat!(
            r#"{{"schema":"pagelab.colour-chase/1","colours":{},"ways":{},"inner_colours":{},"inner_ways":{},"#,
            r#""masks":[{}],"rounds":{},"seed":{},"page_bytes":{},"pool_pages":{},"candidates":[{}],"#,
            r#""near_ns":{:.2},"far_ns":{:.2},"attempts":{},"classes":[{}],"samples":[{}]}}"#
        ),
        args.colours,
        args.ways,
        args.inner_colours,
        args.inner_ways,
        join(args.masks.iter().map(ToString::to_string)),
        args.rounds,
        args.seed,
        pool::PAGE_BYTES,
        pool.len(),
        frames(candidates),
        found.near_ns,
        found.far_ns,
        found.attempts,
        classes,
        samples
    );
}

fn join(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// A mask as people write it: decimal, or hexadecimal behind `0x`.
fn parse_mask(text: &str) -> Result<u64, String> {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.ok().filter(|&mask| mask != 0).ok_or_else(|| format!("'{text}' is no mask; write for example 0x21000"))
}

#[cfg(test)]
mod tests {
    use super::parse_mask;

    #[test]
    fn masks_are_read_in_both_bases() {
        assert_eq!(parse_mask("0x21"), Ok(33));
        assert_eq!(parse_mask("33"), Ok(33));
        assert!(["0", "0x", "x", "-1"].iter().all(|text| parse_mask(text).is_err()));
    }
}
