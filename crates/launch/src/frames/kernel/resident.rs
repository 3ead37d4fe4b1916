//! The pages of a process that is held at its end: their frames by pagemap, compared with the strategy's wishes.

use crate::sys::{self, pagemap, procfs};
use pagelab_contract::record::ColourTable;
use pagelab_frames::strategy::{Modulo, Numbered, Numbers};
use pagelab_frames::{AnyStrategy, Colours, Strategy, Want, Words};
use pagelab_policy::guest::COLOUR_SLOTS;
use pagelab_policy::plan::{FIRST_FROM_SEED, Memory, StrategyKind, StrategySpec};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const FRAME: u64 = (1 << 55) - 1;
/// Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst).
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const PRESENT: u64 = 1 << 63;
/// The file with the flags of each frame; the flag of a huge page of hugetlb; and that of the zero page, which reads of
/// untouched memory see.
const FLAGS: &str = "/proc/kpageflags";
const HUGE: u64 = 1 << 17;
const ZERO_PAGE: u64 = 1 << 24;
/// Entries that are read at once.
const BATCH: usize = 8192;

/// Resident anonymous pages of a process.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    /// All of them.
    pub pages: u64,
    /// Pages of the colour that the strategy wants for their address; `None` under bin hopping, which wants no colour
    /// for an address.
    pub as_asked: u64,
    /// Of another colour.
    pub otherwise: u64,
    /// Pages that the exec filled before the hint was set: the program's arguments and environment.
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

    /// Pages by colour. Under bin hopping all pages count as placed.
    pub fn by_colour(&self) -> ColourTable {
        ColourTable {
            folded: self.folded,
            requested_pages: self.wanted.clone(),
            placed_pages: self.right.clone(),
            fallback_pages: self.wrong.clone(),
        }
    }
}

/// A strategy, and the kinds of memory that it is for.
pub type Placed<'s> = (&'s StrategySpec, &'s [Memory]);

/// Examines a process's private memory, by the kinds of each strategy, until `deadline_ns` (CLOCK_MONOTONIC) at the
/// latest, because the program is held during the examination. Address space that it never touched costs no time.
///
/// # Errors
/// Its maps or its pages cannot be read, the kernel hides frame numbers, or the deadline has passed.
pub fn look(pid: i32, strategies: &[Placed<'_>], deadline_ns: u64) -> io::Result<Vec<Resident>> {
    let maps = procfs::text(pid, "maps")?;
    let image = Image::parse(&procfs::text(pid, "stat")?);
    let entries = Entries { pagemap: File::open(format!("/proc/{pid}/pagemap"))?, deadline_ns };
    let flags = File::open(FLAGS).ok();
    // Ranges with hints of the program's own do not belong to the policy.
    let own = ranges(&procfs::text(pid, "page_hints").unwrap_or_default());
    let judges = strategies.iter().map(|&(strategy, _)| Judge::new(strategy, pid));
    let mut judges: Vec<Judge<'_>> = judges.collect::<Option<_>>().ok_or(io::ErrorKind::InvalidInput)?;
    for region in maps.lines().filter_map(Region::parse).filter(|region| region.is_private) {
        let early_from = if region.name == "[stack]" { image.arguments(region.end) } else { region.end };
        // All pages of a region are hugetlb's, or none.
        let mut is_huge = None;
        entries.each(region.start..region.end, |vpn, entry| {
            let is_anonymous = entry & PRESENT != 0 && entry & FILE == 0;
            if !is_anonymous || lies_in(&own, vpn * PAGE) {
                return Ok(());
            }
            if *is_huge.get_or_insert_with(|| region.is_huge(|| flags_of(flags.as_ref()?, entry & FRAME))) {
                return Ok(());
            }
            let kind = region.kind(vpn * PAGE, &image);
            let judge = judges.iter_mut().zip(strategies).find(|(_, (_, kinds))| kinds.contains(&kind));
            // Only for few pages, because each answer is a system call.
            let is_own = || entry & EXCLUSIVE != 0 || !is_zero_page(flags.as_ref(), entry & FRAME);
            match judge.filter(|_| is_own()) {
                Some((judge, _)) => judge.page(vpn, entry & FRAME, vpn * PAGE >= early_from),
                None => Ok(()),
            }
        })?;
    }
    Ok(judges.into_iter().map(|judge| judge.found).collect())
}

/// The entries of a process's pagemap.
struct Entries {
    pagemap: File,
    deadline_ns: u64,
}

impl Entries {
    /// Calls `visit` with the number and the entry of each page of a span of addresses that is there.
    fn each(&self, span: Range<u64>, mut visit: impl FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
        let mut at = span.start;
        while at < span.end {
            self.check_time()?;
            let Ok((runs, until)) = pagemap::present(&self.pagemap, at..span.end) else {
                // On a kernel that cannot scan, all entries are read.
                return self.read(at / PAGE..span.end / PAGE, &mut visit);
            };
            for run in runs {
                self.read(run.start / PAGE..run.end / PAGE, &mut visit)?;
            }
            at = until.max(at + PAGE);
        }
        Ok(())
    }

    fn read(&self, pages: Range<u64>, visit: &mut impl FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
        let mut bytes = vec![0; BATCH.min((pages.end - pages.start) as usize) * 8];
        for first in pages.clone().step_by(BATCH) {
            self.check_time()?;
            let count = BATCH.min((pages.end - first) as usize);
            let part = &mut bytes[..count * 8];
            // Pages of the kernel's own (vsyscall) have no entries.
            let got = self.pagemap.read_at(part, first * 8)? / 8;
            for (vpn, entry) in (first..).zip(part.chunks_exact(8).take(got)) {
                visit(vpn, entry.try_into().map_or(0, u64::from_ne_bytes))?;
            }
        }
        Ok(())
    }

    fn check_time(&self) -> io::Result<()> {
        let is_over = sys::monotonic_ns() > self.deadline_ns;
        if is_over { Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)) } else { Ok(()) }
    }
}

/// Ranges with hints, in the order of their addresses, in the text of `/proc/PID/page_hints`: `START-END STRATEGY …`.
fn ranges(text: &str) -> Vec<(u64, u64)> {
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some((address(start)?, address(end)?))
    };
    text.lines().filter_map(range).collect()
}

fn lies_in(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|&(start, _)| start <= address);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|&(_, end)| address < end)
}

/// The zero page belongs to no program, and keeps its frame from boot on. If the flags of frames cannot be read, a page
/// that several processes map counts as the zero page.
fn is_zero_page(flags: Option<&File>, frame: u64) -> bool {
    let Some(flags) = flags else { return true };
    flags_of(flags, frame).is_some_and(|flags| flags & ZERO_PAGE != 0)
}

fn flags_of(flags: &File, frame: u64) -> Option<u64> {
    let mut word = [0; 8];
    flags.read_exact_at(&mut word, frame * 8).ok()?;
    Some(u64::from_ne_bytes(word))
}

/// Addresses of a process's image, from its stat line (proc_pid_stat(5)); 0 where it shows none.
#[derive(Clone, Copy, Debug, Default)]
struct Image {
    /// End of the data that is in the file; the bss begins with the next page.
    data_end: u64,
    heap_start: u64,
    arguments_start: u64,
}

impl Image {
    fn parse(stat: &str) -> Image {
        // Behind the name in parentheses, which may contain anything, the third field follows.
        let rest = stat.rfind(')').and_then(|at| stat.get(at + 1..)).unwrap_or_default();
        let field = |number: usize| {
            let word = rest.split_ascii_whitespace().nth(number - 3);
            word.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        Image { data_end: field(46), heap_start: field(47), arguments_start: field(48) }
    }

    /// The page in which the program's arguments begin; `otherwise` if the kernel does not show it.
    fn arguments(&self, otherwise: u64) -> u64 {
        if self.arguments_start == 0 { otherwise } else { self.arguments_start & !(PAGE - 1) }
    }
}

/// A mapping of /proc/PID/maps, the part needed here.
struct Region<'m> {
    start: u64,
    end: u64,
    is_private: bool,
    /// Empty for a mapping without one.
    name: &'m str,
}

impl Region<'_> {
    fn parse(line: &str) -> Option<Region<'_>> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let is_private = fields.next()?.ends_with('p');
        let name = fields.nth(3).unwrap_or_default();
        let kernels_own = matches!(name, "[vsyscall]" | "[vvar]" | "[vdso]" | "[vvar_vclock]");
        Some(Region { start, end, is_private: is_private && !kernels_own, name })
    }

    /// Whether its pages are from hugetlb's pool, which the kernel does not place; `flags` are those of any of its
    /// frames, if they can be read.
    fn is_huge(&self, flags: impl FnOnce() -> Option<u64>) -> bool {
        // MAP_HUGETLB without a file has this one; other mappings of hugetlb have a file, too.
        let has_file = self.name.starts_with('/');
        self.name == "/anon_hugepage" || has_file && flags().is_some_and(|flags| flags & HUGE != 0)
    }

    /// The kind of the memory at an address of it, as the kernel's hints tell kinds apart (`page_hint_kind` of the
    /// series).
    fn kind(&self, address: u64, image: &Image) -> Memory {
        let bss = image.data_end.next_multiple_of(PAGE);
        // The heap of a static PIE lies below its bss.
        let is_bss = self.start <= bss && address >= bss && (address < image.heap_start || image.heap_start < bss);
        match self.name {
            "[heap]" if address >= image.heap_start => Memory::Heap,
            "[stack]" => Memory::Stack,
            // Private mappings of /dev/zero are anonymous.
            name if !name.is_empty() && !name.starts_with('[') && name != "/dev/zero" => Memory::Data,
            _ if is_bss => Memory::Data,
            _ => Memory::Anon,
        }
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
    use pagelab_policy::hints::KINDS;

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
    fn address_space_that_nobody_touches_costs_no_time() {
        const TEBIBYTES_16: usize = 16 << 40;
        let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), TEBIBYTES_16, access, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let middle = base as u64 + TEBIBYTES_16 as u64 / 2;
        // SAFETY: within the mapping, which may be read.
        assert_eq!(unsafe { (middle as *const u8).read_volatile() }, 0);
        let pagemap = File::open("/proc/self/pagemap").expect("/proc");
        // Of the entries of 16 TiB, such a time is enough for a tenth.
        let entries = Entries { pagemap, deadline_ns: sys::monotonic_ns() + 3_000_000_000 };
        let mut found = Vec::new();
        let span = base as u64..base as u64 + TEBIBYTES_16 as u64;
        let seen = entries.each(span, |vpn, entry| {
            found.extend((entry & PRESENT != 0).then_some(vpn));
            Ok(())
        });
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(base, TEBIBYTES_16) };
        seen.expect("in time");
        assert_eq!(found, [middle / PAGE]);
    }

    #[test]
    fn a_program_is_not_held_for_longer_than_allowed() {
        let strategy = StrategySpec::new(StrategyKind::PageColoring, 4);
        let looked = look(std::process::id() as i32, &[(&strategy, &KINDS)], 0);
        assert_eq!(looked.expect_err("too late").raw_os_error(), Some(libc::ETIMEDOUT));
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
    fn ranges_that_the_program_hints_are_left_out() {
        let text = "default page-coloring colors 16\n7f0000003000-7f0000005000 bin-hopping colors 8 first 0\n\
                    7f0000005000-7f0000006000 usual\nplaced 12\nunasked 0\n";
        let found = ranges(text);
        assert_eq!(found, [(0x7f00_0000_3000, 0x7f00_0000_5000), (0x7f00_0000_5000, 0x7f00_0000_6000)]);
        let inside = (0..8).filter(|page| lies_in(&found, 0x7f00_0000_0000 + page * PAGE));
        assert_eq!(inside.collect::<Vec<_>>(), [3, 4, 5]);
        assert!(!lies_in(&[], 0));
    }

    #[test]
    fn kinds_are_those_of_the_kernel() {
        let image = Image { data_end: 0x40_4010, heap_start: 0x60_0000, arguments_start: 0 };
        let kind = |line: &str, address| Region::parse(line).expect("a mapping").kind(address, &image);
        for (line, address, wanted) in [
            ("403000-405000 rw-p 00003000 08:01 7 /bin/x", 0x40_3000, Memory::Data),
            ("405000-40a000 rw-p 00000000 00:00 0", 0x40_6000, Memory::Data),
            // Without randomisation the bss and the heap share a mapping.
            ("405000-621000 rw-p 00000000 00:00 0 [heap]", 0x40_6000, Memory::Data),
            ("405000-621000 rw-p 00000000 00:00 0 [heap]", 0x60_0000, Memory::Heap),
            ("7f0000000000-7f0000004000 rw-p 00000000 00:00 0", 0x7f00_0000_0000, Memory::Anon),
            ("7f0000000000-7f0000004000 rw-p 00000000 00:00 0 [anon:pool]", 0x7f00_0000_0000, Memory::Anon),
            ("7f0000000000-7f0000004000 rw-p 00002000 08:01 9 /lib/libc.so.6", 0x7f00_0000_0000, Memory::Data),
            ("7f0000000000-7f0000004000 rw-p 00000000 00:05 5 /dev/zero", 0x7f00_0000_0000, Memory::Anon),
            ("7f0000000000-7f0000004000 rw-p 00000000 08:01 9 /tmp/dev/zero", 0x7f00_0000_0000, Memory::Data),
            ("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]", 0x7ffd_0002_0000, Memory::Stack),
        ] {
            assert_eq!(kind(line, address), wanted, "{line} at {address:x}");
        }
    }

    #[test]
    fn pages_of_hugetlb_are_not_placed() {
        const THP: u64 = 1 << 22;
        let is_huge = |name: &str, flags| {
            let line = format!("7f0000000000-7f0000400000 rw-p 00000000 00:0f 9 {name}");
            Region::parse(&line).expect("a mapping").is_huge(|| flags)
        };
        assert!(is_huge("/anon_hugepage (deleted)", None));
        assert!(is_huge("/mnt/huge/file", Some(HUGE)) && is_huge("/memfd:huge (deleted)", Some(HUGE | THP)));
        assert!(!is_huge("/lib/libc.so.6", Some(THP)) && !is_huge("/lib/libc.so.6", None));
        assert!(!is_huge("", Some(HUGE)) && !is_huge("[heap]", Some(HUGE)), "hugetlb always has a file");
    }

    #[test]
    fn the_bss_of_a_static_pie_is_above_its_heap() {
        let image = Image { data_end: 0x7f00_0000_a010, heap_start: 0x5500_0000_0000, arguments_start: 0 };
        let kind = |line: &str, address| Region::parse(line).expect("a mapping").kind(address, &image);
        for (line, address, wanted) in [
            ("550000000000-550000021000 rw-p 00000000 00:00 0 [heap]", 0x5500_0000_0000, Memory::Heap),
            ("7f0000008000-7f000000b000 rw-p 00008000 08:01 7 /bin/x", 0x7f00_0000_a000, Memory::Data),
            ("7f000000b000-7f000010c000 rw-p 00000000 00:00 0", 0x7f00_0008_0000, Memory::Data),
            ("7f0000200000-7f0000300000 rw-p 00000000 00:00 0", 0x7f00_0020_0000, Memory::Anon),
            ("7effff000000-7effff100000 rw-p 00000000 00:00 0", 0x7eff_ff00_0000, Memory::Anon),
        ] {
            assert_eq!(kind(line, address), wanted, "{line} at {address:x}");
        }
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let pid = std::process::id() as i32;
        let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
        assert!(Image::parse(&stat).arguments(0) > PAGE, "{stat}");
        let one = StrategySpec::new(StrategyKind::PageColoring, 1);
        let [rest, stack] = [&[Memory::Heap, Memory::Anon, Memory::Data][..], &[Memory::Stack]];
        match look(pid, &[(&one, rest), (&one, stack)], u64::MAX).as_deref() {
            // Any frame has the only colour there is.
            Ok([rest, stack]) => {
                assert!(rest.as_asked > 10 && rest.otherwise == 0 && rest.early == 0, "{rest:?}");
                assert!(stack.otherwise == 0 && stack.early > 0, "{stack:?}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "frame numbers need root"),
        }
    }
}
