//! Writing plans (the launcher's side; allocates).

use alloc::vec::Vec;

use super::{
    Fetch, Flags, HEADER_BYTES, INTERVAL_BYTES, Interval, MAGIC, Memory, Plan, PlanError, SECTION_BYTES, Section,
    VERSION, Via,
};

/// One section to be written, with its intervals (sorted, disjoint, aligned to their page sizes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionSpec {
    /// See [`Section::memory`].
    pub memory: Memory,
    /// See [`Section::at_least`].
    pub at_least: u64,
    /// See [`Section::pool_base`].
    pub pool_base: u64,
    /// See [`Section::otherwise`].
    pub otherwise: u64,
    /// See [`Section::otherwise_via`].
    pub otherwise_via: Via,
    /// See [`Section::fetch`].
    pub fetch: Fetch,
    /// See [`Section::rule`].
    pub rule: u16,
    /// See [`Section::range_start`]; `None` but for [`Memory::Range`].
    pub range: Option<(u64, u64)>,
    /// Its intervals.
    pub intervals: Vec<Interval>,
}

impl SectionSpec {
    /// A section that gives all memory of one kind one page size, without a pool, and leaves `fetch` to the kernel.
    pub fn uniform(memory: Memory, page_bytes: u64, via: Via) -> SectionSpec {
        let pool_base = match memory {
            Memory::Heap => super::HEAP_BASE,
            Memory::Anon | Memory::Arenas => super::ANON_BASE,
            _ => 0,
        };
        SectionSpec {
            memory,
            at_least: 0,
            pool_base,
            otherwise: page_bytes,
            otherwise_via: via,
            fetch: Fetch::Kernel,
            rule: 0,
            range: None,
            intervals: Vec::new(),
        }
    }

    /// What a reader will see of it.
    pub fn matches(&self, section: &Section) -> bool {
        section.memory == self.memory
            && section.at_least == self.at_least
            && section.pool_base == self.pool_base
            && section.otherwise == self.otherwise
            && section.otherwise_via == self.otherwise_via
            && section.fetch == self.fetch
            && section.rule == self.rule
            && (section.range_start, section.range_end) == self.range.unwrap_or((0, 0))
            && section.interval_count() as usize == self.intervals.len()
    }
}

/// A whole plan to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanSpec {
    /// See [`Flags`].
    pub flags: Flags,
    /// In rule order.
    pub sections: Vec<SectionSpec>,
    /// Absolute path of the run directory, where guests create their files.
    pub run_dir: Vec<u8>,
}

impl PlanSpec {
    /// The file's bytes, read back and checked before they are handed out.
    pub fn encode(&self) -> Result<Vec<u8>, PlanError> {
        let intervals: usize = self.sections.iter().map(|section| section.intervals.len()).sum();
        let total = HEADER_BYTES
            + self.sections.len() * SECTION_BYTES
            + intervals * INTERVAL_BYTES
            + self.run_dir.len()
            + 1;
        let mut out = Vec::with_capacity(total);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.flags.0.to_le_bytes());
        out.extend((total as u64).to_le_bytes());
        for count in [self.sections.len(), intervals, self.run_dir.len()] {
            let count = u32::try_from(count).map_err(|_| PlanError::Invalid("count", u32::MAX))?;
            out.extend(count.to_le_bytes());
        }
        out.resize(HEADER_BYTES, 0);
        let mut first = 0;
        for section in &self.sections {
            encode_section(&mut out, section, first);
            first += section.intervals.len() as u32;
        }
        for interval in self.sections.iter().flat_map(|section| &section.intervals) {
            for word in [interval.start, interval.end, interval.page_bytes, interval.via as u64] {
                out.extend(word.to_le_bytes());
            }
        }
        out.extend(&self.run_dir);
        out.push(0);
        Plan::parse(&out)?;
        Ok(out)
    }
}

fn encode_section(out: &mut Vec<u8>, section: &SectionSpec, first: u32) {
    let end = out.len() + SECTION_BYTES;
    out.extend([section.memory as u8, section.otherwise_via as u8, section.fetch as u8, 0]);
    out.extend(section.rule.to_le_bytes());
    out.extend([0, 0]);
    let (range_start, range_end) = section.range.unwrap_or((0, 0));
    for word in [section.at_least, section.pool_base, section.otherwise, range_start, range_end] {
        out.extend(word.to_le_bytes());
    }
    out.extend(first.to_le_bytes());
    out.extend((section.intervals.len() as u32).to_le_bytes());
    out.resize(end, 0);
}
