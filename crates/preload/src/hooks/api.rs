//! Functions for programs: those of `pagelab.h`, whose comments are their documentation.
//!
//! Arguments are read, and results written, while no lock is held: the program's memory may be the very memory whose
//! faults the engine answers.

mod cache;
mod hint;

use core::ffi::{CStr, c_char, c_int, c_void};

use pagelab_abi::plan::StrategyKind;

use crate::backing::hints;
use crate::backing::hints::{Counters, Moved};
use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{Errno, Result};
use crate::hooks::late_start::prepare;

use super::windows;

use hint::RawHint;

/// Version of the interface (`PAGELAB_API_VERSION`).
const VERSION: c_int = 3;
/// `PAGELAB_BY_LIBRARY`, `PAGELAB_BY_KERNEL`.
const BY_LIBRARY: c_int = 1;
const BY_KERNEL: c_int = 2;
/// `PAGELAB_NO_COLOR`.
const NO_COLOUR: u32 = u32::MAX;
/// Pages of one query.
const BATCH: usize = 512;
/// User addresses end below this.
const ADDRESS_END: usize = 1 << 56;

fn status(result: Result<()>) -> c_int {
    result.map_or_else(|errno| -errno.0, |()| 0)
}

/// All pages that contain a byte of the range.
fn pages(addr: *const c_void, len: usize) -> Result<Span> {
    let start = addr as usize;
    let end = start.checked_add(len).filter(|end| len > 0 && *end <= ADDRESS_END).ok_or(Errno::EINVAL)?;
    Ok(Span::new(align_down(start, PAGE), align_up(end, PAGE).ok_or(Errno::EINVAL)?))
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_version() -> c_int {
    VERSION
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_backend() -> c_int {
    if hints::are_the_kernels() { BY_KERNEL } else { BY_LIBRARY }
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_start() -> c_int {
    status(hints::start(prepare))
}

/// # Safety
/// `hint` is null or a hint, with lists as long as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_set_range(addr: *mut c_void, len: usize, hint: *const RawHint) -> c_int {
    let set = || {
        hints::refuse_under_filter()?;
        let span = pages(addr, len)?;
        // SAFETY: the caller promises null or a hint, with lists as long as it says.
        let asked = unsafe { hint::read(hint, Some(span)) }?;
        hints::set_range(span, asked, prepare)
    };
    status(set())
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_clear_range(addr: *mut c_void, len: usize) -> c_int {
    status(pages(addr, len).and_then(|span| hints::clear_range(span, prepare)))
}

/// # Safety
/// As [`pagelab_set_range`].
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_set_default(hint: *const RawHint) -> c_int {
    let set = || {
        hints::refuse_under_filter()?;
        if hint.is_null() {
            return hints::clear_default(prepare);
        }
        // SAFETY: the caller promises null or a hint, with lists as long as it says.
        hints::set_default(unsafe { hint::read(hint, None) }?, prepare)
    };
    status(set())
}

/// # Safety
/// `moved` is null or room for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_remap_range(addr: *mut c_void, len: usize, moved: *mut Moved) -> c_int {
    let result = pages(addr, len).and_then(|span| hints::remap_range(span, prepare));
    if let Ok(result) = result
        && !moved.is_null()
    {
        // SAFETY: the caller promises room for the result.
        unsafe { moved.write(result) };
    }
    status(result.map(drop))
}

/// Receives frame numbers, their pages, and the index of the first one.
type TakeFrames<'t> = dyn FnMut(usize, Span, &[u64]) -> Result<()> + 't;

/// Calls `visit` with the frame numbers of pages from `addr` on, at most [`BATCH`] at a time, and the first one's
/// index.
fn each_frame(addr: *const c_void, count: usize, visit: &mut TakeFrames<'_>) -> Result<()> {
    let start = align_down(addr as usize, PAGE);
    let mut frames = [0u64; BATCH];
    for first in (0..count).step_by(BATCH) {
        let some = frames.get_mut(..BATCH.min(count - first)).unwrap_or(&mut []);
        let span = pages((start.wrapping_add(first.wrapping_mul(PAGE))) as *const c_void, some.len() * PAGE)?;
        hints::frames(span, some)?;
        visit(first, span, some)?;
    }
    Ok(())
}

/// # Safety
/// `frames` is room for `count` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_frames(addr: *const c_void, count: usize, frames: *mut u64) -> c_int {
    if frames.is_null() {
        return -Errno::EINVAL.0;
    }
    status(each_frame(addr, count, &mut |first, _, some| {
        // SAFETY: the caller promises room for `count` numbers, and these end there at the latest.
        unsafe { core::ptr::copy_nonoverlapping(some.as_ptr(), frames.add(first), some.len()) };
        Ok(())
    }))
}

/// # Safety
/// `colours` is room for `count` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_colors(addr: *const c_void, count: usize, colours: *mut u32) -> c_int {
    if colours.is_null() {
        return -Errno::EINVAL.0;
    }
    let mut known = Span::new(0, 0);
    let mut function = cache::colours();
    status(each_frame(addr, count, &mut |first, span, some| {
        for (index, frame) in some.iter().enumerate() {
            let page = span.start + index * PAGE;
            if !(known.start..known.end).contains(&page) {
                (function, known) = colours_around(page)?;
            }
            let colour = if *frame == 0 { NO_COLOUR } else { function.of(*frame) };
            // SAFETY: the caller promises room for `count` numbers, and these end there at the latest.
            unsafe { colours.add(first + index).write(colour) };
        }
        Ok(())
    }))
}

/// How colours are counted at `addr`, and the range around it for which that holds.
fn colours_around(addr: usize) -> Result<(pagelab_frames::Colours, Span)> {
    let (colours, within) = hints::colours_around(addr)?;
    Ok((colours.unwrap_or_else(cache::colours), within))
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_color_count(addr: *const c_void) -> c_int {
    let count = hints::colour_count(addr as usize).unwrap_or_else(|| cache::colours().count());
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_strategy_at(addr: *const c_void) -> c_int {
    hints::strategy_at(addr as usize).map_or(0, |kind: StrategyKind| kind as c_int + 1)
}

/// # Safety
/// `counters` is room for `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_counters(counters: *mut c_void, size: usize) -> c_int {
    if counters.is_null() {
        return -Errno::EINVAL.0;
    }
    let all = hints::counters();
    let known = size.min(size_of::<Counters>());
    // SAFETY: the caller promises room for `size` bytes; fields that only a later version of the header has become
    // zero.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), counters.cast(), known);
        core::ptr::write_bytes(counters.cast::<u8>().add(known), 0, size - known);
    }
    0
}

/// # Safety
/// `name` is null or a string that ends with a NUL.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagelab_begin(name: *const c_char) -> c_int {
    if name.is_null() {
        return -Errno::EINVAL.0;
    }
    // SAFETY: the caller promises a string that ends with a NUL.
    status(windows::begin(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_end() -> c_int {
    status(windows::end())
}

#[unsafe(no_mangle)]
extern "C" fn pagelab_window_placement() -> c_int {
    status(windows::placement())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_widened_to_pages() {
        let of = |addr: usize, len| pages(addr as *const c_void, len);
        assert_eq!(of(0x1001, 1), Ok(Span::new(0x1000, 0x2000)));
        assert_eq!(of(0x1fff, 2), Ok(Span::new(0x1000, 0x3000)));
        assert_eq!(of(0x1000, 0), Err(Errno::EINVAL));
        assert_eq!(of(usize::MAX, 2), Err(Errno::EINVAL));
        assert_eq!(of(0x1000, ADDRESS_END), Err(Errno::EINVAL));
    }
}
