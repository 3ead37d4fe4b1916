//! The pages of a process that is held at its end, as pagemap shows them, against what the strategy wanted of each.

use crate::sys::{self, procfs};
use pagelab_contract::record::ColourTable;
use pagelab_frames::strategy::{Modulo, Numbered, Numbers};
use pagelab_frames::{AnyStrategy, Colours, Strategy, Want, Words};
use pagelab_policy::guest::COLOUR_SLOTS;
use pagelab_policy::plan::{FIRST_FROM_SEED, StrategyKind, StrategySpec};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const FRAME: u64 = (1 << 55) - 1;
/// Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst).
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const PRESENT: u64 = 1 << 63;
/// Flags of each frame, and the one of the page of zeros that reads of untouched memory see.
const FLAGS: &str = "/proc/kpageflags";
const ZERO_PAGE: u64 = 1 << 24;
/// Entries that are read at once.
const BATCH: usize = 8192;

/// Resident anonymous pages of a process.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    /// All of them.
    pub pages: u64,
    /// Of the colour that the strategy wants of their address; of a sequence, which wants none of an address, nobody can
    /// tell.
    pub as_asked: u64,
    /// Of another colour.
    pub otherwise: u64,
    /// Pages that the exec filled before the hint came to hold: the program's arguments and environment.
    early: u64,
    wanted: Vec<u64>,
    right: Vec<u64>,
    wrong: Vec<u64>,
    folded: bool,
}

impl Resident {
    /// By the words of the record.
    pub fn out_of_reach(&self) -> BTreeMap<String, u64> {
        (self.early > 0).then(|| ("early".to_owned(), self.early * PAGE)).into_iter().collect()
    }

    /// By colour. Of a sequence all pages count as placed.
    pub fn by_colour(&self) -> ColourTable {
        ColourTable {
            folded: self.folded,
            requested_pages: self.wanted.clone(),
            placed_pages: self.right.clone(),
            fallback_pages: self.wrong.clone(),
        }
    }
}

/// Looks at all private memory of a process, until `deadline_ns` (CLOCK_MONOTONIC) at the latest: a program can map terabytes
/// that it never touches, and is held meanwhile.
///
/// # Errors
/// Its maps or its pages cannot be read, frame numbers are kept back, or it takes too long.
pub fn look(pid: i32, strategy: &StrategySpec, deadline_ns: u64) -> io::Result<Resident> {
    let (maps, stat) = (procfs::text(pid, "maps")?, procfs::text(pid, "stat")?);
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let flags = File::open(FLAGS).ok();
    let mut judge = Judge::new(strategy, pid).ok_or(io::ErrorKind::InvalidInput)?;
    for region in maps.lines().filter_map(Region::parse).filter(|region| region.is_private) {
        let early_from = if region.is_stack {
            arguments_start(&stat).map_or(region.end, |at| at & !(PAGE - 1))
        } else {
            region.end
        };
        let mut bytes = vec![0; BATCH * 8];
        let mut page = region.start / PAGE;
        while page < region.end / PAGE {
            if sys::monotonic_ns() > deadline_ns {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
            let count = BATCH.min((region.end / PAGE - page) as usize);
            let part = &mut bytes[..count * 8];
            // Pages of the kernel's own (vsyscall) have no entries.
            let got = pagemap.read_at(part, page * 8)? / 8;
            for (number, entry) in part.chunks_exact(8).take(got).enumerate() {
                let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
                let vpn = page + number as u64;
                let is_anonymous = entry & PRESENT != 0 && entry & FILE == 0;
                // Asked of few pages: each answer is a system call.
                if is_anonymous && (entry & EXCLUSIVE != 0 || !is_zero_page(flags.as_ref(), entry & FRAME)) {
                    judge.page(vpn, entry & FRAME, vpn * PAGE >= early_from)?;
                }
            }
            if got < count {
                break;
            }
            page += count as u64;
        }
    }
    Ok(judge.found)
}

/// The page of zeros is nobody's, and has the frame that it had at boot. Without flags a page that several processes see is
/// taken for it.
fn is_zero_page(flags: Option<&File>, frame: u64) -> bool {
    let Some(flags) = flags else { return true };
    let mut word = [0; 8];
    flags.read_exact_at(&mut word, frame * 8).is_ok() && u64::from_ne_bytes(word) & ZERO_PAGE != 0
}

/// Where the program's arguments begin: `arg_start`, field 48 of its stat line (proc_pid_stat(5)).
fn arguments_start(stat: &str) -> Option<u64> {
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    rest.split_ascii_whitespace().nth(48 - 3)?.parse().ok().filter(|&at| at != 0)
}

/// A mapping of /proc/PID/maps, the part needed here.
struct Region {
    start: u64,
    end: u64,
    is_private: bool,
    is_stack: bool,
}

impl Region {
    fn parse(line: &str) -> Option<Region> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let is_private = fields.next()?.ends_with('p');
        let name = fields.nth(3);
        let kernels_own = matches!(name, Some("[vsyscall]" | "[vvar]" | "[vdso]" | "[vvar_vclock]"));
        Some(Region { start, end, is_private: is_private && !kernels_own, is_stack: name == Some("[stack]") })
    }
}

/// Compares pages with what the strategy wants of them.
struct Judge<'s> {
    colours: Colours,
    strategy: AnyStrategy<'s>,
    found: Resident,
}

impl<'s> Judge<'s> {
    /// `None`: no strategy that the kernel has.
    fn new(spec: &'s StrategySpec, pid: i32) -> Option<Judge<'s>> {
        let colours = if spec.masks.is_empty() {
            Colours::low_bits(spec.colours)?
        } else {
            Colours::masked(spec.masks.iter().copied())?
        };
        let numbers = Numbers {
            colours: colours.count(),
            first: (spec.first != FIRST_FROM_SEED).then_some(spec.first),
            seed: spec.seed,
            hashed_pid: spec.pid_hash.then_some(pid as u32),
        };
        let strategy = match spec.kind {
            StrategyKind::Modulo => {
                AnyStrategy::Modulo(Modulo::repeating(colours.count(), little_endian(&spec.values)))
            }
            kind => AnyStrategy::Numbered(Numbered::new(kind, numbers)?),
        };
        let slots = COLOUR_SLOTS.min(colours.count() as usize);
        let found = Resident {
            wanted: vec![0; slots],
            right: vec![0; slots],
            wrong: vec![0; slots],
            folded: colours.count() as usize > COLOUR_SLOTS,
            ..Resident::default()
        };
        Some(Judge { colours, strategy, found })
    }

    fn page(&mut self, vpn: u64, frame: u64, is_early: bool) -> io::Result<()> {
        if frame == 0 {
            // They read as 0 without CAP_SYS_ADMIN.
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let found = &mut self.found;
        if is_early {
            found.early += 1;
            return Ok(());
        }
        found.pages += 1;
        let slot = |colour: u32| colour as usize % COLOUR_SLOTS;
        let colour = self.colours.of(frame);
        if !self.strategy.is_by_address() {
            found.right[slot(colour)] += 1;
            return Ok(());
        }
        match self.strategy.want(vpn) {
            Want::Colour(wanted) => {
                found.wanted[slot(wanted)] += 1;
                if wanted == colour {
                    found.as_asked += 1;
                    found.right[slot(colour)] += 1;
                } else {
                    found.otherwise += 1;
                    found.wrong[slot(wanted)] += 1;
                }
            }
            Want::Frame(_) | Want::Any => {}
        }
        Ok(())
    }
}

/// The words of a list as the strategies read them; in memory on a little-endian machine they are that already.
fn little_endian(values: &[u64]) -> Words<'_> {
    const { assert!(cfg!(target_endian = "little")) };
    // SAFETY: any eight bytes of an integer are bytes, and the slice lives as long as the result.
    Words::new(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(spec: &StrategySpec, pages: &[(u64, u64)]) -> Resident {
        let mut judge = Judge::new(spec, 1).expect("a strategy");
        pages.iter().for_each(|&(vpn, frame)| judge.page(vpn, frame, false).expect("a frame"));
        judge.found
    }

    #[test]
    fn pages_are_compared_with_the_colour_of_their_address() {
        let found =
            judged(&StrategySpec::new(StrategyKind::PageColoring, 4), &[(4, 8), (5, 9), (6, 7), (1007, 403)]);
        assert_eq!((found.pages, found.as_asked, found.otherwise), (4, 3, 1));
        let table = found.by_colour();
        assert_eq!((table.requested_pages, table.placed_pages), (vec![1, 1, 1, 1], vec![1, 1, 0, 1]));
        assert_eq!(table.fallback_pages, [0, 0, 1, 0]);
    }

    #[test]
    fn address_space_that_nobody_touches_is_no_way_to_be_held_for_long() {
        let (access, kind) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), 64 << 30, access, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let begin = sys::monotonic_ns();
        let own = std::process::id() as i32;
        let looked = look(own, &StrategySpec::new(StrategyKind::PageColoring, 4), begin + 1_000_000);
        assert_eq!(looked.expect_err("too much").raw_os_error(), Some(libc::ETIMEDOUT));

        // SAFETY: the mapping made above.
        unsafe { libc::munmap(base, 64 << 30) };
    }

    #[test]
    fn a_pattern_leaves_out_what_may_lie_anywhere() {
        let values = vec![3, pagelab_policy::plan::ANYWHERE];
        let spec = StrategySpec { values, ..StrategySpec::new(StrategyKind::Modulo, 4) };
        let found = judged(&spec, &[(0, 3), (1, 2), (2, 2)]);
        assert_eq!((found.pages, found.as_asked, found.otherwise), (3, 1, 1));
    }

    #[test]
    fn of_a_sequence_only_the_spread_over_the_colours_is_told() {
        let found = judged(&StrategySpec::new(StrategyKind::BinHopping, 2), &[(0, 2), (1, 3), (2, 5)]);
        assert_eq!((found.pages, found.as_asked, found.otherwise), (3, 0, 0));
        assert_eq!(found.by_colour().placed_pages, [1, 2]);
    }

    #[test]
    fn frame_numbers_that_are_kept_back_are_no_result() {
        let spec = StrategySpec::new(StrategyKind::PageColoring, 4);
        assert!(Judge::new(&spec, 1).expect("a strategy").page(1, 0, false).is_err());
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let pid = std::process::id() as i32;
        let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
        assert!(arguments_start(&stat).is_some_and(|at| at > PAGE), "{stat}");
        match look(pid, &StrategySpec::new(StrategyKind::PageColoring, 1), u64::MAX) {
            // Any frame has the only colour there is.
            Ok(found) => {
                assert!(found.as_asked > 10 && found.otherwise == 0 && found.early > 0, "{found:?}");
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "frame numbers need root"),
        }
    }
}
