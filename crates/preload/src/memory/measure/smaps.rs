//! Measurement on kernels without `PAGEMAP_SCAN`: sums by mapping from `/proc/self/smaps`.

use pagelab_abi::guest::PlacementMethod;
use pagelab_abi::plan::Plan;

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::maps;
use crate::boundary::own::Fresh;
use crate::boundary::sys::{self, Result, c};

use super::place_of;
use super::tally::Tally;

const BUFFER: usize = 32 << 10;

/// Bytes of the process in memory, and those of them in huge pages; `ENOENT` where the kernel does not report them
/// (before 4.14).
pub fn in_memory() -> Result<(usize, usize)> {
    let mut text = [0u8; 4096];
    let fd = sys::open(c"/proc/self/smaps_rollup", c::O_RDONLY, 0)?;
    let read = sys::read(fd, &mut text);
    sys::close(fd);
    let (mut resident, mut mapped, mut pools) = (0, 0, 0);
    for line in text.get(..read?).unwrap_or(&[]).split(|&byte| byte == b'\n') {
        for (names, sum) in [
            (&[&b"Rss:"[..]][..], &mut resident),
            (&[b"AnonHugePages:", b"ShmemPmdMapped:", b"FilePmdMapped:"], &mut mapped),
            (&[b"Private_Hugetlb:", b"Shared_Hugetlb:"], &mut pools),
        ] {
            *sum += names.iter().find_map(|name| kibibytes(line, name)).unwrap_or(0);
        }
    }
    // Rss does not contain pages of the reserved pools.
    Ok((resident + pools, mapped + pools))
}

/// The value of the line called `name`, in bytes.
fn kibibytes(line: &[u8], name: &[u8]) -> Option<usize> {
    let digits =
        line.strip_prefix(name)?.iter().skip_while(|&&byte| byte == b' ').take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0usize, |sum, &byte| sum * 10 + usize::from(byte - b'0')) * 1024)
}

/// Sums of one mapping, in bytes.
#[derive(Clone, Copy, Default)]
struct Sums {
    slot: Option<usize>,
    resident: usize,
    huge: usize,
    page: usize,
    hugetlb: usize,
}

impl Sums {
    fn line(&mut self, line: &[u8]) {
        let fields: [(&[u8], &mut usize); 4] = [
            (b"Rss:", &mut self.resident),
            (b"AnonHugePages:", &mut self.huge),
            (b"KernelPageSize:", &mut self.page),
            (b"Private_Hugetlb:", &mut self.hugetlb),
        ];
        for (name, value) in fields {
            *value += kibibytes(line, name).unwrap_or(0);
        }
    }

    fn store(&self, tally: &Tally) {
        let Some(slot) = self.slot else { return };
        if self.hugetlb > 0 {
            tally.resident(slot, self.page, self.hugetlb);
        }
        tally.resident(slot, PMD, self.huge);
        tally.resident(slot, PAGE, self.resident.saturating_sub(self.huge));
    }
}

/// Sums of the whole process; `None` where smaps cannot be read.
pub fn sums(plan: &Plan<'static>, tally: &mut Tally) -> Option<PlacementMethod> {
    let mut buffer = Fresh::map(BUFFER).ok()?.into_bytes();
    walk(plan, tally, buffer.all()).then_some(PlacementMethod::Smaps)
}

fn walk(plan: &Plan<'static>, tally: &mut Tally, buffer: &mut [u8]) -> bool {
    let Ok(fd) = sys::open(c"/proc/self/smaps", c::O_RDONLY, 0) else { return false };
    let (mut kept, mut data_end) = (0, 0);
    let mut current = Sums::default();
    while let Ok(read) = sys::read(fd, buffer.get_mut(kept..).unwrap_or(&mut [])) {
        if read == 0 {
            break;
        }
        let used = kept + read;
        let mut from = 0;
        while let Some(len) = buffer.get(from..used).and_then(|rest| rest.iter().position(|&byte| byte == b'\n')) {
            let line = buffer.get(from..from + len).unwrap_or(&[]);
            match maps::parse(line) {
                Some(mapping) => {
                    current.store(tally);
                    let place = place_of(plan, &mapping, &mut data_end);
                    let slot = place.and_then(|place| {
                        let piece = place.layout.map(|layout| layout.piece(mapping.span.start));
                        tally.mapped(&place, piece.as_ref(), mapping.span)
                    });
                    current = Sums { slot, ..Sums::default() };
                }
                None => current.line(line),
            }
            from += len + 1;
        }
        buffer.copy_within(from..used, 0);
        kept = used - from;
    }
    current.store(tally);
    sys::close(fd);
    tally.uncounted();
    true
}
