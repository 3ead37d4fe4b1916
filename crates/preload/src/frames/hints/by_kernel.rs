//! Hints that the kernel carries out: the other backend of the API.
//!
//! The kernel keeps these hints, through forks too. So the library keeps only the default with which the program was
//! started. There is no engine, no pool and no thread, and nothing is locked.

use core::sync::atomic::{AtomicU8, Ordering};

use pagelab_abi::page_hints::{ANON, FIRST, HASH_PID, HEAP, Hint, PIN, USUAL};
use pagelab_abi::plan::{Flags, Parameter, StrategyKind, Words};
use pagelab_frames::Colours;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::own::Once;
use crate::boundary::span::Span;
use crate::boundary::sys::page_hints::{self, Hints};
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::kernel::kpageflags;
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::pool::chunks::SLOTS;
use crate::state::{own_stack, plan, seccomp};

use super::hint_table::{Asked, SPAN_BYTES};
use super::queries::Counters;
use super::{Moved, mapped, unshare};

/// Most pages in one query.
const BATCH: usize = 512;

/// Whether hints go to the kernel: as the plan says; without a plan, if the kernel has page placement.
pub fn is_asked() -> bool {
    plan::current().map_or_else(are_there, |plan| plan.flags().contains(Flags::HINTS_BY_KERNEL))
}

/// Whether this kernel has page placement. It is checked once, by the constructor, before the program can forbid it.
fn are_there() -> bool {
    const UNKNOWN: u8 = 2;
    static THERE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut there = THERE.load(Ordering::Relaxed);
    if there == UNKNOWN {
        there = u8::from(page_hints::are_there());
        THERE.store(there, Ordering::Relaxed);
    }
    there == 1
}

/// Runs `what` with the process's hints open.
fn with<R>(what: impl FnOnce(Hints) -> Result<R>) -> Result<R> {
    if seccomp::is_active() {
        return Err(Errno::EOPNOTSUPP);
    }
    own_stack::with_files(|| {
        apart(|| {
            let hints = Hints::open().map_err(why_not_open)?;
            let result = what(hints);
            hints.close();
            result
        })
    })?
    .map_err(meaning)
}

/// The API's errno for an errno of opening the file.
fn why_not_open(errno: Errno) -> Errno {
    match errno {
        // The kernel has no page placement.
        Errno::ENOENT => Errno::EOPNOTSUPP,
        Errno::EACCES => Errno::EPERM,
        errno => errno,
    }
}

/// The API's errno for an errno of a request.
fn meaning(errno: Errno) -> Errno {
    match errno {
        // More colours than the machine has pages; all other causes are checked before.
        Errno::ERANGE | Errno::E2BIG => Errno::EINVAL,
        // The kernel's patch series is older than this request.
        Errno::ENOTTY => Errno::EOPNOTSUPP,
        errno => errno,
    }
}

/// The kinds of memory that a default is for.
const KINDS: [u32; 2] = [HEAP, ANON];

/// The default hints of the process when it was started, by [`KINDS`]: the policy's.
type Defaults = [Option<Hint>; KINDS.len()];

static POLICYS: Once<Defaults> = Once::empty();

/// Reads the defaults that the process was started with, before the program can replace them. Called by the
/// constructor.
pub fn learn_default() {
    if !is_asked() || POLICYS.get().is_some() {
        return;
    }
    let read = |hints: Hints| Ok(KINDS.map(|kind| hints.default_of(kind).unwrap_or(None)));
    POLICYS.set(with(read).unwrap_or_default());
}

fn policys() -> Defaults {
    POLICYS.get().copied().unwrap_or_default()
}

/// Checks whether hints would be accepted. The kernel checks rights before parameters, and this hint has a parameter
/// that its strategy does not take.
pub fn start() -> Result<()> {
    let refused = Hint { colors: 1, ..Hint::named(USUAL) };
    match with(|hints| hints.set_default(refused)) {
        Err(Errno::EINVAL) => Ok(()),
        result => result,
    }
}

/// Gives `span` a hint; `None`: the kernel places it.
pub fn set_range(span: Span, asked: Option<Asked>) -> Result<()> {
    let pins = asked.as_ref().is_some_and(|asked| asked.spec.pin);
    let set = |asked: Option<&Asked>| {
        let hint = Hint { start: span.start as u64, length: span.len() as u64, ..of(asked)? };
        mapped(span)?;
        with(|hints| {
            check_frames(asked)?;
            hints.set_range(hint)
        })
    };
    let result = set(asked.as_ref());
    release(asked);
    result.map_err(|errno| without_pins(errno, pins))
}

/// The errno for a refused hint. A series that cannot pin refuses one that `pins` with EINVAL; all other causes of
/// EINVAL are checked before.
fn without_pins(errno: Errno, pins: bool) -> Errno {
    if pins && errno == Errno::EINVAL { Errno::EOPNOTSUPP } else { errno }
}

/// Withdraws the hints for `span`.
pub fn clear_range(span: Span) -> Result<()> {
    with(|hints| hints.clear(span.start, span.len()))
}

/// Sets the hint for heap and mappings without another one (`None`: the kernel places them).
pub fn set_default(asked: Option<Asked>) -> Result<()> {
    let set = |asked: Option<&Asked>| {
        let hint = of(asked)?;
        let hint = Hint { kinds: replaceable(&policys())?, ..hint };
        with(|hints| hints.set_default(hint))
    };
    let pins = asked.as_ref().is_some_and(|asked| asked.spec.pin);
    let result = set(asked.as_ref());
    release(asked);
    result.map_err(|errno| without_pins(errno, pins))
}

/// Restores the defaults with which the program was started.
pub fn clear_default() -> Result<()> {
    let before = policys();
    let kinds = replaceable(&before)?;
    let policys = before.into_iter().flatten().find(is_of_all);
    let hint = Hint { kinds, ..policys.unwrap_or(Hint::named(USUAL)) };
    with(|hints| hints.set_default(hint))
}

/// The kinds of memory for which the program may set its own default: those that no rule of the policy names.
/// EOPNOTSUPP: there are none, or the policy's default could not be restored.
///
/// A hint for some kinds may be a rule's, which the program must not replace, or what rules left of the policy's
/// default. The kernel does not tell, so it counts as a rule's.
fn replaceable(policys: &Defaults) -> Result<u32> {
    let free = |of: &Option<Hint>| of.as_ref().is_none_or(is_of_all);
    let kinds = KINDS.into_iter().zip(policys).filter(|(_, of)| free(of)).fold(0, |kinds, (kind, _)| kinds | kind);
    let has_lists = |hint: &Hint| (hint.mask_count, hint.value_count) != (0, 0);
    let is_lost = policys.iter().flatten().any(|hint| is_of_all(hint) && has_lists(hint));
    if kinds == 0 || is_lost { Err(Errno::EOPNOTSUPP) } else { Ok(kinds) }
}

/// Whether a default is the one for all memory, and so comes from no rule.
fn is_of_all(hint: &Hint) -> bool {
    hint.kinds == 0
}

fn release(asked: Option<Asked>) {
    if let Some(asked) = asked {
        asked.values.release();
    }
}

/// Converts a hint into the kernel's form, without its range. It points to data that belong to `asked`.
fn of(asked: Option<&Asked>) -> Result<Hint> {
    let Some(asked) = asked else { return Ok(Hint::named(USUAL)) };
    let (spec, masks, values) = (&asked.spec, asked.colours.masks(), named_values(asked));
    let mut hint = Hint::named(spec.kind.name());
    if spec.kind != StrategyKind::Exact {
        hint.colors = spec.colours;
        (hint.masks, hint.mask_count) = (masks.as_ptr() as u64, masks.len() as u32);
    }
    (hint.values, hint.value_count) = (values.as_ptr() as u64, (values.len() / size_of::<u64>()) as u64);
    if spec.pid_hash {
        hint.flags |= HASH_PID;
    }
    if spec.pin {
        hint.flags |= PIN;
    }
    if spec.kind.takes(Parameter::First) && !asked.draws_first {
        (hint.flags, hint.first) = (hint.flags | FIRST, spec.first);
    }
    if spec.kind.takes(Parameter::Seed) {
        hint.seed = spec.seed;
    }
    Ok(hint)
}

/// The bytes of the hint's colours or frames. (An exact hint's span comes before them.)
fn named_values(asked: &Asked) -> &'static [u8] {
    let bytes = asked.values.bytes();
    match asked.spec.kind {
        StrategyKind::Exact => bytes.get(SPAN_BYTES..).unwrap_or(&[]),
        _ => bytes,
    }
}

/// Refuses frames that no program can have, as the library's engine does. Opens files: see [`with`].
fn check_frames(asked: Option<&Asked>) -> Result<()> {
    let Some(asked) = asked.filter(|asked| asked.spec.kind == StrategyKind::Exact) else { return Ok(()) };
    let flags = kpageflags::Flags::open();
    let refused = flags.has_impossible(Words::new(named_values(asked)));
    if flags.0 >= 0 {
        sys::close(flags.0);
    }
    if refused { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Moves the resident pages of `span` to their wanted frames.
pub fn remap_range(span: Span) -> Result<Moved> {
    mapped(span)?;
    if !with(|hints| is_governed(hints, span))? {
        return Err(Errno::EINVAL);
    }
    unshare(span, &mut [0; SLOTS]);
    let found = with(|hints| hints.remap(span.start, span.len()))?;
    let (pages, present) = ((span.len() / PAGE) as u64, present(span)?);
    let in_place = (found.moved + found.there).min(present);
    Ok(Moved { pages, absent: pages - present, in_place, elsewhere: present - in_place })
}

/// Whether a strategy governs any page of `span`.
fn is_governed(hints: Hints, span: Span) -> Result<bool> {
    let mut at = span.start;
    while at < span.end {
        let found = hints.at(at)?;
        if found.is_some_and(|hint| hint.name() != USUAL) {
            return Ok(true);
        }
        at = end_of(found.as_ref(), at);
    }
    Ok(false)
}

/// End of the addresses for which an answer about the page at `at` is known to hold.
fn end_of(found: Option<&Hint>, at: usize) -> usize {
    let range = found.filter(|hint| hint.length != 0);
    range.map_or(at + PAGE, |hint| (hint.start + hint.length) as usize).max(at + PAGE)
}

/// The number of pages of `span` that are in memory.
fn present(span: Span) -> Result<u64> {
    own_stack::with_files(|| {
        apart(|| {
            let pagemap = Pagemap::open()?;
            let count = count_present(pagemap, span);
            sys::close(pagemap.0);
            count
        })
    })?
}

fn count_present(pagemap: Pagemap, span: Span) -> Result<u64> {
    let (mut words, mut count) = ([0u64; SLOTS], 0);
    for start in (span.start..span.end).step_by(SLOTS * PAGE) {
        let some = (span.end - start).min(SLOTS * PAGE) / PAGE;
        let Some(words) = words.get_mut(..some) else { continue };
        pagemap.read_present(start, words)?;
        count += words.iter().sum::<u64>();
    }
    Ok(count)
}

/// The way in which colours are counted at some address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coloring {
    /// No colours are counted.
    None,
    /// By the low bits of frame numbers.
    LowBits(u32),
    /// By the masks of this many colours, which the kernel does not report.
    Masked(u32),
}

impl Coloring {
    fn of(hint: Option<&Hint>) -> Coloring {
        match hint.map(|hint| (hint.colors, hint.mask_count)) {
            None | Some((0, _)) => Coloring::None,
            Some((colours, 0)) => Coloring::LowBits(colours),
            Some((colours, _)) => Coloring::Masked(colours),
        }
    }

    /// As the hint at an address counts them, or otherwise as the policy does.
    fn at(hints: Hints, address: usize) -> Result<(Coloring, usize)> {
        let found = hints.at(address)?;
        let own = Coloring::of(found.as_ref());
        let coloring = if own == Coloring::None { Coloring::of_policy(hints)? } else { own };
        Ok((coloring, end_of(found.as_ref(), address)))
    }

    /// As the policy, or the program's own default, counts them.
    fn of_policy(hints: Hints) -> Result<Coloring> {
        let of = |kind| hints.default_of(kind).map(|found| Coloring::of(found.as_ref()));
        let (heap, anon) = (of(HEAP)?, of(ANON)?);
        Ok(if anon == Coloring::None { heap } else { anon })
    }

    /// The colour function; `None`: no colours are counted.
    fn colours(self) -> Result<Option<Colours>> {
        match self {
            Coloring::None => Ok(None),
            Coloring::LowBits(count) => Ok(Colours::low_bits(count)),
            Coloring::Masked(_) => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// How the hint at `addr`, or otherwise the policy, counts colours. Without hints no colours are counted.
fn coloring_at(addr: usize) -> Coloring {
    with(|hints| Coloring::at(hints, addr)).map_or(Coloring::None, |(coloring, _)| coloring)
}

/// As [`coloring_at`], and the addresses for which that holds.
fn coloring_around(addr: usize) -> (Coloring, Span) {
    let look = |hints| {
        let (coloring, mut end) = Coloring::at(hints, addr)?;
        // The kernel reports no end for a default.
        for _ in 0..BATCH {
            match Coloring::at(hints, end) {
                Ok((next, until)) if next == coloring => end = until,
                _ => break,
            }
        }
        Ok((coloring, Span::new(addr, end)))
    };
    with(look).unwrap_or((Coloring::None, Span::new(addr, addr + PAGE * BATCH)))
}

/// The colours around an address: those of its hint, or otherwise the policy's.
pub fn colours_around(addr: usize) -> Result<(Option<Colours>, Span)> {
    let (coloring, span) = coloring_around(addr);
    Ok((coloring.colours()?, span))
}

/// The number of colours at an address; `None`: neither a hint nor the policy gives one.
pub fn colour_count(addr: usize) -> Option<u32> {
    match coloring_at(addr) {
        Coloring::None => None,
        Coloring::LowBits(count) | Coloring::Masked(count) => Some(count),
    }
}

/// The policy's colours.
pub fn usual_colours() -> Result<Option<Colours>> {
    with(Coloring::of_policy).unwrap_or(Coloring::None).colours()
}

/// The strategy of the page at `addr`; a strategy of the kernel that the library does not know counts as a module.
pub fn strategy_at(addr: usize) -> Option<StrategyKind> {
    let hint = with(|hints| hints.at(addr)).unwrap_or(None)?;
    match hint.name() {
        USUAL => None,
        name => Some(StrategyKind::from_name(name).unwrap_or(StrategyKind::Module)),
    }
}

/// Counts of the kernel's placements so far.
pub fn counters() -> Counters {
    let counted = with(Hints::counters);
    counted.map_or_else(
        |_| Counters::default(),
        |found| Counters::by_kernel(found.placed, found.absent + found.bound + found.watermark),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_abi::page_hints::DATA;
    use pagelab_abi::plan::{ANYWHERE, Strategy as Spec};
    use pagelab_frames::AnyStrategy;
    use pagelab_frames::strategy::{Numbered, PageColoring};

    use super::super::values::Values;

    fn asked(kind: StrategyKind, colours: Colours, lists: &[&[u64]]) -> Asked {
        Asked {
            spec: Spec::plain(kind, colours.count()),
            draws_first: false,
            colours,
            strategy: AnyStrategy::Numbered(Numbered::PageColoring(PageColoring::new(1))),
            values: if lists.is_empty() { Values::none() } else { Values::copy(lists).unwrap() },
        }
    }

    fn sixteen() -> Colours {
        Colours::low_bits(16).unwrap()
    }

    /// The list to which a hint points.
    fn list(address: u64, count: u64) -> Vec<u64> {
        // SAFETY: the tests keep the lists to which their hints point.
        unsafe { core::slice::from_raw_parts(address as *const u64, count as usize) }.to_vec()
    }

    #[test]
    fn every_strategy_has_its_own_name_and_what_it_takes() {
        for &kind in StrategyKind::ALL {
            let mut of_kind = asked(kind, sixteen(), &[]);
            (of_kind.spec.seed, of_kind.spec.first) = (7, 3);
            let hint = of(Some(&of_kind)).unwrap();
            assert_eq!(hint.name(), kind.name());
            assert_eq!(hint.seed, if kind.takes(Parameter::Seed) { 7 } else { 0 });
            let first = if kind.takes(Parameter::First) { (FIRST, 3) } else { (0, 0) };
            assert_eq!((hint.flags, hint.first), first, "{kind:?}");
            assert_eq!(hint.colors, if kind == StrategyKind::Exact { 0 } else { 16 });
        }
        assert_eq!(of(None).unwrap().name(), USUAL);
    }

    #[test]
    fn a_drawn_first_colour_is_the_seeds() {
        let mut hopping = asked(StrategyKind::BinHopping, sixteen(), &[]);
        (hopping.spec.seed, hopping.draws_first) = (9, true);
        let hint = of(Some(&hopping)).unwrap();
        assert_eq!((hint.flags, hint.first, hint.seed), (0, 0, 9));
    }

    #[test]
    fn lists_are_those_of_the_hint() {
        let masked = asked(StrategyKind::PageColoring, Colours::masked([0x11, 0x22]).unwrap(), &[]);
        let hint = of(Some(&masked)).unwrap();
        assert_eq!((hint.colors, list(hint.masks, hint.mask_count.into())), (4, vec![0x11, 0x22]));
        let modulo = asked(StrategyKind::Modulo, sixteen(), &[&[3], &[1, ANYWHERE]]);
        let hint = of(Some(&modulo)).unwrap();
        assert_eq!(list(hint.values, hint.value_count), [3, 1, ANYWHERE]);
        let exact = asked(StrategyKind::Exact, sixteen(), &[&[0x1000, 2, 0], &[900, 77]]);
        let hint = of(Some(&exact)).unwrap();
        assert_eq!((hint.colors, list(hint.values, hint.value_count)), (0, vec![900, 77]));
    }

    #[test]
    fn pins_are_a_flag_and_a_series_without_them_is_told_apart() {
        let mut pinned = asked(StrategyKind::Random, sixteen(), &[]);
        pinned.spec.pin = true;
        assert_eq!(of(Some(&pinned)).unwrap().flags, PIN);
        assert_eq!(without_pins(Errno::EINVAL, true), Errno::EOPNOTSUPP);
        assert_eq!(
            (without_pins(Errno::EINVAL, false), without_pins(Errno::EPERM, true)),
            (Errno::EINVAL, Errno::EPERM)
        );
    }

    #[test]
    fn a_default_is_for_what_no_rule_names_and_can_be_put_back() {
        let all = Hint { colors: 16, ..Hint::named("random") };
        let rule = Hint { kinds: HEAP, ..all };
        assert_eq!(replaceable(&[None, None]), Ok(HEAP | ANON));
        assert_eq!(replaceable(&[Some(all), Some(all)]), Ok(HEAP | ANON));
        assert_eq!(replaceable(&[Some(rule), None]), Ok(ANON));
        assert_eq!(replaceable(&[Some(rule), Some(rule)]), Err(Errno::EOPNOTSUPP));
        // A rule for three kinds, or a default beside a rule for the stack.
        let some = Hint { kinds: HEAP | ANON | DATA, ..all };
        assert_eq!(replaceable(&[Some(some), Some(some)]), Err(Errno::EOPNOTSUPP));
        for lost in [Hint { mask_count: 2, ..all }, Hint { value_count: 1, ..all }] {
            assert_eq!(replaceable(&[Some(lost), Some(lost)]), Err(Errno::EOPNOTSUPP));
            assert_eq!(replaceable(&[Some(Hint { kinds: HEAP, ..lost }), None]), Ok(ANON), "a rule's stays");
        }
    }

    #[test]
    fn answers_hold_to_the_end_of_a_range_or_for_a_page() {
        let range = Hint { start: 0x4000, length: 0x3000, ..Hint::named("random") };
        assert_eq!(end_of(Some(&range), 0x5000), 0x7000);
        assert_eq!(end_of(Some(&Hint { start: 0, length: 0, ..range }), 0x5000), 0x6000);
        assert_eq!(end_of(None, 0x5000), 0x6000);
    }

    #[test]
    fn colours_by_masks_are_not_told() {
        let low = Hint { colors: 12, ..Hint::named("random") };
        assert_eq!(Coloring::of(Some(&low)).colours(), Ok(Colours::low_bits(12)));
        assert_eq!(Coloring::of(Some(&Hint { mask_count: 2, ..low })).colours(), Err(Errno::EOPNOTSUPP));
        assert_eq!(Coloring::of(Some(&Hint::named("exact"))).colours(), Ok(None));
        assert_eq!(Coloring::of(None), Coloring::None);
    }

    #[test]
    fn errors_are_the_interfaces_own() {
        let asked = [Errno::ENOENT, Errno::EACCES, Errno::EMFILE].map(why_not_open);
        assert_eq!(asked, [Errno::EOPNOTSUPP, Errno::EPERM, Errno::EMFILE]);
        let asked = [Errno::ERANGE, Errno::E2BIG, Errno::ENOTTY, Errno::ENOENT, Errno::EPERM].map(meaning);
        let wanted = [Errno::EINVAL, Errno::EINVAL, Errno::EOPNOTSUPP, Errno::ENOENT, Errno::EPERM];
        assert_eq!(asked, wanted);
    }

    /// For a kernel without the patch series; a kernel with it is tested in QEMU (kernel/test).
    #[test]
    fn a_kernel_without_page_placement_is_told_apart() {
        if page_hints::are_there() {
            return;
        }
        assert!(!is_asked());
        assert_eq!(start(), Err(Errno::EOPNOTSUPP));
        assert_eq!((strategy_at(0x1000), colour_count(0x1000)), (None, None));
        assert_eq!(counters(), Counters::default());
    }
}
