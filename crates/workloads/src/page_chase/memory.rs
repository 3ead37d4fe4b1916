//! Populated memory in pages of one size.

use std::fs;

use memmap2::{Advice, MmapMut, MmapOptions};

/// Bytes of a small page.
pub const SMALL: usize = 1 << 12;
pub const LARGE: usize = 1 << 21;
const GIANT_BITS: u8 = 30;
/// Least part of the memory that must be in large pages, in percent.
const ENOUGH: usize = 99;

/// The size of the pages in which memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    Small,
    Large,
    Giant,
}

impl Backing {
    pub fn name(self) -> &'static str {
        match self {
            Backing::Small => "4K",
            Backing::Large => "2M",
            Backing::Giant => "1G",
        }
    }
}

/// Memory whose first used byte is at a multiple of 2 MiB.
pub struct Memory {
    pub backing: Backing,
    /// Bytes in huge pages, by the kernel's report.
    pub huge_bytes: usize,
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl Memory {
    /// Memory in each available size: always in small pages, in others where the kernel gives them.
    pub fn all(bytes: usize) -> Result<Vec<Memory>, String> {
        let small = Memory::anonymous(bytes, Backing::Small)?;
        let large = Memory::anonymous(bytes, Backing::Large)?;
        let mut all = vec![small];
        all.extend(Some(large).filter(|large| large.huge_bytes >= bytes / 100 * ENOUGH));
        all.extend(Memory::giant(bytes));
        Ok(all)
    }

    fn anonymous(bytes: usize, backing: Backing) -> Result<Memory, String> {
        let map = MmapOptions::new()
            .len(bytes + LARGE)
            .map_anon()
            .map_err(|error| format!("cannot map {bytes} bytes: {error}; ask for fewer --bytes"))?;
        let advice = if backing == Backing::Small { Advice::NoHugePage } else { Advice::HugePage };
        // A kernel without huge pages has neither advice, and gives small pages.
        let _ = map.advise(advice);
        let start = map.as_ptr().align_offset(LARGE);
        let mut memory = Memory { backing, huge_bytes: 0, map, start, bytes };
        memory.touch();
        memory.huge_bytes = huge_bytes(memory.map.as_ptr() as usize + start);
        Ok(memory)
    }

    /// Memory from the pool of 1 GiB pages, if it has enough free ones.
    fn giant(bytes: usize) -> Option<Memory> {
        let bytes = bytes.next_multiple_of(1 << GIANT_BITS);
        let map = MmapOptions::new().len(bytes).huge(Some(GIANT_BITS)).map_anon().ok()?;
        let mut memory = Memory { backing: Backing::Giant, huge_bytes: bytes, map, start: 0, bytes };
        memory.touch();
        Some(memory)
    }

    fn touch(&mut self) {
        for at in (0..self.bytes).step_by(SMALL) {
            self.map[self.start + at] = 1;
        }
    }

    /// A part of `bytes` bytes, at a multiple of 2 MiB that `random` chooses: in a virtual machine, the host may back
    /// one part differently from the next.
    pub fn part(&mut self, bytes: usize, random: u64) -> &mut [u8] {
        let choices = (self.bytes - bytes.min(self.bytes)) / LARGE + 1;
        let from = self.start + (random % choices as u64) as usize * LARGE;
        &mut self.map[from..self.start + self.bytes]
    }
}

/// Bytes in huge pages of the mapping that contains an address, by `/proc/self/smaps`; 0 if it does not report them.
fn huge_bytes(address: usize) -> usize {
    let text = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut within = false;
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        let range = range.map(|(low, high)| (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16)));
        if let Some((Ok(low), Ok(high))) = range {
            within = (low..high).contains(&address);
        } else if let Some(value) = line.strip_prefix("AnonHugePages:").filter(|_| within) {
            let kib: Option<usize> = value.trim().strip_suffix(" kB").and_then(|number| number.trim().parse().ok());
            return kib.unwrap_or(0) * 1024;
        }
    }
    0
}
