//! Hints as C programs write them, read and checked.

use pagelab_abi::plan::{ANYWHERE, MOST_COLOURS, Parameter, Strategy as Spec, StrategyKind, Words};
use pagelab_frames::strategy::{Exact, Modulo, Numbered, Numbers, PageColoring, Spans};
use pagelab_frames::{AnyStrategy, Colours, MOST_MASKS};

use crate::backing::hints;
use crate::backing::hints::{Asked, SPAN_BYTES, Values};
use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result};

use super::cache;

/// `struct pagelab_hint`.
#[repr(C)]
pub struct RawHint {
    size: u32,
    strategy: u32,
    colors: u32,
    flags: u32,
    first: u32,
    fault_around: u32,
    seed: u64,
    budget_bytes: u64,
    masks: *const u64,
    mask_count: usize,
    values: *const u64,
    value_count: usize,
}

const HASH_PID: u32 = 1;
const PIN: u32 = 2;
const DRAW_FIRST: u32 = 4;
/// `PAGELAB_KERNEL`.
const KERNEL: u32 = 0;
/// Values of one hint, at most: a list for 4 GiB of memory.
const MOST_VALUES: usize = 1 << 20;
const LARGEST_FRAME: u64 = (1 << 40) - 1;

/// Reads the hint for `span` (`None`: a default). Returns `None` if the hint leaves pages to the kernel.
///
/// # Safety
/// `hint` is null or a hint, with lists as long as it says.
#[inline(never)]
pub unsafe fn read(hint: *const RawHint, span: Option<Span>) -> Result<Option<Asked>> {
    // SAFETY: the caller promises null or a hint.
    let Some(hint) = (unsafe { hint.as_ref() }) else { return Err(Errno::EINVAL) };
    if (hint.size as usize) < size_of::<RawHint>() {
        return Err(Errno::EINVAL);
    }
    if hint.strategy == KERNEL {
        return Ok(None);
    }
    let kind = StrategyKind::from_code(u64::from(hint.strategy) - 1)
        .filter(|kind| *kind != StrategyKind::Module)
        .ok_or(Errno::EINVAL)?;
    // SAFETY: the caller promises a list of masks as long as the hint says.
    let colours = unsafe { hint.colours() }?;
    hint.check(kind, &colours)?;
    let mut spec = Spec::plain(kind, colours.count());
    (spec.seed, spec.budget_bytes) = (hint.seed, hint.budget_bytes);
    spec.first = hint.first;
    (spec.pin, spec.pid_hash) = (hint.flags & PIN != 0, hint.flags & HASH_PID != 0);
    spec.fault_around = u16::try_from(hint.fault_around).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the caller promises a list of values as long as the hint says.
    let values = unsafe { hint.copied_values(kind, &colours, span) }?;
    let strategy = hint.strategy_of(kind, &colours, &values);
    Ok(Some(Asked { spec, draws_first: hint.flags & DRAW_FIRST != 0, colours, strategy, values }))
}

impl RawHint {
    /// # Safety
    /// `masks` is as long as the hint says.
    unsafe fn colours(&self) -> Result<Colours> {
        if self.mask_count == 0 {
            return match self.colors {
                0 => Ok(hints::usual_colours()?.unwrap_or_else(cache::colours)),
                count => Colours::low_bits(count).ok_or(Errno::EINVAL),
            };
        }
        if self.masks.is_null() || self.mask_count > MOST_MASKS {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that `masks` is as long as the hint says.
        let masks = unsafe { core::slice::from_raw_parts(self.masks, self.mask_count) };
        let colours = Colours::masked(masks.iter().copied()).filter(Colours::is_onto).ok_or(Errno::EINVAL)?;
        let agrees = self.colors == 0 || self.colors == colours.count();
        if agrees { Ok(colours) } else { Err(Errno::EINVAL) }
    }

    fn check(&self, kind: StrategyKind, colours: &Colours) -> Result<()> {
        let takes_values = kind.takes(Parameter::Pattern) || kind.takes(Parameter::Frames);
        let values = if takes_values { 1..=MOST_VALUES } else { 0..=0 };
        let takes_first = kind.takes(Parameter::First);
        let switches = [(kind.takes(Parameter::Hash), HASH_PID), (takes_first, DRAW_FIRST)];
        let flags = switches.into_iter().filter(|(on, _)| *on).fold(PIN, |flags, (_, flag)| flags | flag);
        let first_fits = self.first == 0 || (takes_first && self.first < colours.count());
        let sound = values.contains(&self.value_count)
            && (self.value_count == 0 || !self.values.is_null())
            && self.flags & !flags == 0
            && first_fits
            && colours.count() <= MOST_COLOURS;
        if sound { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Copies the values into the library's own memory, in the order in which the strategy looks them up.
    ///
    /// # Safety
    /// `values` is as long as the hint says.
    unsafe fn copied_values(&self, kind: StrategyKind, colours: &Colours, span: Option<Span>) -> Result<Values> {
        if self.value_count == 0 {
            return Ok(Values::none());
        }
        // SAFETY: the caller promises that `values` is as long as the hint says.
        let given = unsafe { core::slice::from_raw_parts(self.values, self.value_count) };
        let most = match kind {
            StrategyKind::Modulo => u64::from(colours.count()) - 1,
            _ => LARGEST_FRAME,
        };
        if given.iter().any(|value| *value > most && *value != ANYWHERE) {
            return Err(Errno::EINVAL);
        }
        let start = span.map_or(0, |span| span.start);
        if kind == StrategyKind::Exact {
            let span = [start as u64, given.len() as u64, 0];
            return Values::copy(&[&span, given]);
        }
        // Values are looked up by page number modulo the length, so they are rotated: the range's first page finds the
        // first value.
        let turn = (start / PAGE).checked_rem(given.len()).unwrap_or(0);
        let (head, tail) = given.split_at_checked(given.len() - turn).ok_or(Errno::EINVAL)?;
        Values::copy(&[tail, head])
    }

    fn strategy_of(&self, kind: StrategyKind, colours: &Colours, values: &Values) -> AnyStrategy<'static> {
        let (count, words) = (colours.count(), values.words());
        match kind {
            StrategyKind::Modulo => AnyStrategy::Modulo(Modulo::repeating(count, words)),
            StrategyKind::Exact => {
                let (span, frames) = words_after_span(values);
                AnyStrategy::Exact(Exact::new(Spans::new(span, frames)))
            }
            _ => {
                let numbers = Numbers {
                    colours: count,
                    first: (self.flags & DRAW_FIRST == 0).then_some(self.first),
                    seed: self.seed,
                    hashed_pid: (self.flags & HASH_PID != 0).then(sys::getpid),
                };
                // Modules are not read from hints.
                let plain = Numbered::PageColoring(PageColoring::new(count));
                AnyStrategy::Numbered(Numbered::new(kind, numbers).unwrap_or(plain))
            }
        }
    }
}

/// Splits Exact's values: the three words of its span, and the frames.
fn words_after_span(values: &Values) -> (Words<'static>, Words<'static>) {
    let bytes = values.bytes();
    bytes
        .split_at_checked(SPAN_BYTES)
        .map_or((Words::default(), Words::default()), |(span, frames)| (Words::new(span), Words::new(frames)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_frames::{Strategy, Want};

    fn plain(strategy: u32) -> RawHint {
        RawHint {
            size: size_of::<RawHint>() as u32,
            strategy,
            colors: 16,
            flags: 0,
            first: 0,
            fault_around: 0,
            seed: 0,
            budget_bytes: 0,
            masks: core::ptr::null(),
            mask_count: 0,
            values: core::ptr::null(),
            value_count: 0,
        }
    }

    fn wants(hint: &RawHint, span: Option<Span>, pages: core::ops::Range<u64>) -> Result<Vec<Want>> {
        // SAFETY: the tests' lists are as long as they say.
        let mut asked = unsafe { read(hint, span) }?.expect("not the kernel");
        Ok(pages.map(|vpn| asked.strategy.want(vpn)).collect())
    }

    #[test]
    fn values_are_counted_from_the_first_page_of_the_range() {
        use Want::{Any, Colour, Frame};
        let span = Some(Span::new(0x10_3000, 0x10_9000));
        let colours = [5, 6, ANYWHERE, 7];
        let modulo = RawHint { values: colours.as_ptr(), value_count: 4, ..plain(3) };
        let expected = [Colour(5), Colour(6), Any, Colour(7), Colour(5), Colour(6)];
        assert_eq!(wants(&modulo, span, 0x103..0x109).unwrap(), expected);
        assert_eq!(wants(&modulo, None, 0..2).unwrap(), [Colour(5), Colour(6)]);
        let frames = [900, ANYWHERE, 77];
        let exact = RawHint { values: frames.as_ptr(), value_count: 3, ..plain(4) };
        assert_eq!(wants(&exact, span, 0x103..0x107).unwrap(), [Frame(900), Any, Frame(77), Any]);
    }

    #[test]
    fn hints_become_strategies() {
        use Want::Colour;
        assert_eq!(wants(&plain(1), None, 17..19).unwrap(), [Colour(1), Colour(2)]);
        let hopping = RawHint { first: 15, ..plain(2) };
        assert_eq!(wants(&hopping, None, 0..2).unwrap(), [Colour(15), Colour(0)]);
        let masks = [0x11, 0x22];
        let masked = RawHint { colors: 0, masks: masks.as_ptr(), mask_count: 2, ..plain(1) };
        assert_eq!(wants(&masked, None, 6..7).unwrap(), [Colour(2)]);
        // SAFETY: the hint has no lists.
        assert!(unsafe { read(&plain(0), None) }.unwrap().is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        let values = [16u64];
        let one = values.as_ptr();
        let masks = [3u64, 3];
        let nonsense = [
            RawHint { size: 8, ..plain(1) },
            plain(6),
            plain(77),
            RawHint { colors: MOST_COLOURS + 1, ..plain(1) },
            RawHint { flags: DRAW_FIRST, ..plain(1) },
            RawHint { flags: HASH_PID, ..plain(2) },
            RawHint { first: 16, ..plain(2) },
            RawHint { first: 1, ..plain(1) },
            RawHint { fault_around: 1 << 16, ..plain(1) },
            plain(3),
            RawHint { values: one, value_count: 1, ..plain(3) },
            RawHint { values: one, value_count: 1, ..plain(1) },
            RawHint { value_count: 1, ..plain(3) },
            RawHint { masks: masks.as_ptr(), mask_count: 1, ..plain(1) },
            RawHint { colors: 0, masks: masks.as_ptr(), mask_count: 2, ..plain(1) },
            RawHint { colors: 0, mask_count: 2, ..plain(1) },
        ];
        for (number, hint) in nonsense.iter().enumerate() {
            assert_eq!(wants(hint, None, 0..1), Err(Errno::EINVAL), "case {number}");
        }
        // SAFETY: null is refused before anything is read.
        assert_eq!(unsafe { read(core::ptr::null(), None) }.err(), Some(Errno::EINVAL));
    }
}
