//! Scanning a mapped file, in order or at random, to measure prepaging (readahead, fault-around).

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::measure::{Measurements, Proof};
use crate::options::Order;
use crate::rng::{Rng, mix};

const PAGE: usize = 4096;
const MAGIC: &[u8; 8] = b"PLSCAN1\n";

/// Read one word of each page of a mapped file.
#[derive(clap::Args)]
pub struct Args {
    /// The file, made by `make-file`
    #[arg(long)]
    file: PathBuf,
    /// Order of the pages
    #[arg(long, value_enum, default_value_t = Order::Sequential)]
    order: Order,
    /// Read only this share of the pages, in percent
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: u8,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Make a file for `mmap-scan`: its first page says what the others hold.
#[derive(clap::Args)]
pub struct MakeArgs {
    /// Where to write it
    #[arg(long)]
    file: PathBuf,
    /// Its size, rounded up to whole 4K pages
    #[arg(long, value_parser = crate::options::parse_bytes)]
    bytes: usize,
    /// Seed of its contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn word_of(seed: u64, page: u64) -> u64 {
    mix(seed.wrapping_add(page.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Writes the file beside its place and renames it, so that a torn one is never taken for whole.
pub fn make(args: &MakeArgs) -> Result<(), String> {
    let describe = |error: io::Error| format!("cannot write {}: {error}", args.file.display());
    // A random name: the user's own files, and another process that makes the same one, are left alone.
    let random = RandomState::new().build_hasher().finish();
    let name = args.file.file_name().unwrap_or_default().display();
    let part = args.file.with_file_name(format!(".{name}-{random:016x}"));
    let file = File::options().write(true).create_new(true).open(&part).map_err(describe)?;
    fill(file, args).and_then(|()| fs::rename(&part, &args.file)).map_err(|error| {
        let _ = fs::remove_file(&part);
        describe(error)
    })
}

fn fill(file: File, args: &MakeArgs) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    let pages = args.bytes.div_ceil(PAGE).max(2) as u64;
    let mut page = vec![0_u8; PAGE];
    page[..8].copy_from_slice(MAGIC);
    page[8..16].copy_from_slice(&args.seed.to_le_bytes());
    page[16..24].copy_from_slice(&pages.to_le_bytes());
    out.write_all(&page)?;
    for number in 1..pages {
        let word = word_of(args.seed, number);
        for (slot, bytes) in page.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word.wrapping_add(slot as u64).to_le_bytes());
        }
        out.write_all(&page)?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Scans the file; the proof compares the sum of the words read with the sum the file's header promises.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let map = open(&args.file)?;
    let (seed, pages) = header(&map, &args.file)?;
    let mut order: Vec<u32> = (1..pages as u32).collect();
    if args.order == Order::Random {
        let mut rng = Rng::new(args.seed);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
    }
    order.truncate((order.len() * usize::from(args.percent)).div_ceil(100));
    let expected = order.iter().fold(0_u64, |sum, &page| sum.wrapping_add(word_of(seed, u64::from(page))));
    let checksum = measurements.time("mmap_scan.page", order.len() as u64, || scan(&map, &order))?;
    measurements.end_window();
    Ok(Proof { checksum, expected })
}

fn scan(map: &[u8], order: &[u32]) -> u64 {
    order.iter().fold(0, |sum, &page| sum.wrapping_add(word_at(map, page as usize * PAGE)))
}

fn word_at(map: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&map[offset..offset + 8]);
    u64::from_le_bytes(word)
}

fn open(path: &Path) -> Result<Mmap, String> {
    let describe = |error: std::io::Error| format!("cannot map {}: {error}", path.display());
    let file = File::open(path).map_err(describe)?;
    // SAFETY: the file is this workload's own input; should another process truncate it, the scan dies with
    // SIGBUS, which ends the benchmark as it should if its input has vanished.
    unsafe { Mmap::map(&file) }.map_err(describe)
}

fn header(map: &[u8], path: &Path) -> Result<(u64, u64), String> {
    let hint = format!("make one with: pagelab-workload make-file --file {} --bytes 64M", path.display());
    if map.len() < 2 * PAGE || &map[..8] != MAGIC {
        return Err(format!("{} is no file for mmap-scan; {hint}", path.display()));
    }
    let (seed, pages) = (word_at(map, 8), word_at(map, 16));
    if pages.checked_mul(PAGE as u64) != Some(map.len() as u64) {
        return Err(format!("{} is truncated; {hint}", path.display()));
    }
    Ok((seed, pages))
}
