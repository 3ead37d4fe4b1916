//! The colours of this machine's second-level cache: the default of hints.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use pagelab_frames::Colours;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::sys::{self, c};
use crate::state::{own_stack, seccomp};

/// The number where nothing is known: 64, as for 256 KiB a way.
const USUAL: u32 = 64;
/// The number of colours; 0: not read yet.
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// Colours by the low bits of the frame number: as many as one way of the second-level cache holds pages.
pub fn colours() -> Colours {
    let mut count = KNOWN.load(Ordering::Relaxed);
    if count == 0 && !seccomp::is_raw() {
        count = one_way().unwrap_or(USUAL);
        KNOWN.store(count, Ordering::Relaxed);
    }
    const { assert!(Colours::low_bits(USUAL).is_some()) };
    // The last one never fails, as was just checked; a cache of one colour is as good an answer as any.
    Colours::low_bits(count).or(Colours::low_bits(USUAL)).unwrap_or(Colours::ONE)
}

fn one_way() -> Option<u32> {
    let sets = number(c"/sys/devices/system/cpu/cpu0/cache/index2/number_of_sets")?;
    let line = number(c"/sys/devices/system/cpu/cpu0/cache/index2/coherency_line_size")?;
    let pages = sets.checked_mul(line)? / PAGE as u32;
    Some(pages.max(1))
}

fn number(path: &CStr) -> Option<u32> {
    let mut text = [0u8; 32];
    let read = || {
        let fd = sys::open(path, c::O_RDONLY, 0)?;
        let used = sys::read(fd, &mut text);
        sys::close(fd);
        used
    };
    let used = own_stack::with_files(|| apart(read)).ok()?;
    let digits = text.get(..used.ok()?)?.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0u32, |value, byte| value.saturating_mul(10).saturating_add(u32::from(byte - b'0')));
    (value > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_of_the_cache_in_pages() {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index2/{name}");
            std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        let expected = match (read("size"), read("ways_of_associativity")) {
            (Some(size), Some(ways)) => {
                let kib: u32 = size.trim_end_matches('K').parse().unwrap();
                kib * 1024 / ways.parse::<u32>().unwrap() / 4096
            }
            _ => USUAL,
        };
        assert_eq!(colours().count(), expected.max(1));
    }
}
