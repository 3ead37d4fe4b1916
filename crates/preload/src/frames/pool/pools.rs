//! The pools of free pages, by colour function: one stock for all strategies that share the function.

use pagelab_abi::plan::{Strategy as Spec, StrategyKind};
use pagelab_frames::stock::{CHUNK_SLOTS, Refused};
use pagelab_frames::{Chunk, Colours, List, Run, SlotId, State, Stock, Want};

use crate::boundary::arch::PAGE;
use crate::boundary::own::{Fresh, Zeroed};
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::kernel::pagemap::Pagemap;

use super::chunks;
use super::verify::Looks;

/// Most chunks of one pool (64 GiB).
pub const MOST_CHUNKS: usize = 1 << 15;
/// Least number of free pages kept: one chunk, so that small processes stay small.
const LOWEST_HIGH: u32 = CHUNK_SLOTS as u32;
/// ... and the most, unless some colour runs out: 16 MiB.
const HIGHEST_HIGH: u32 = 8 * CHUNK_SLOTS as u32;
/// A colour is low at half of its goal; in small processes at a quarter, because they may never need fetched pages.
const LOW_PART: u32 = 2;
const SMALL_LOW_PART: u32 = 4;
/// Filling up cannot wait if only one part in this many of the goal is left ...
const PRESSED_PART: u32 = SMALL_LOW_PART;
/// ... or not enough for this many moments like the last one.
const MOMENTS_AHEAD: u32 = 8;
/// Most chunks populated in the search for one page.
const MOST_HUNTED: u64 = 64;
/// ... and most pieces, where orders are smaller than a chunk.
const SMALL_TURNS: usize = 4;
/// Most halvings of these numbers, after searches in vain.
const MOST_BARREN: u32 = 16;
/// Default budget: the bytes that the pool may hold ...
const BUDGET: u64 = 64 << 20;
/// ... or one part in this many of the process's other memory, if that is more.
const BUDGET_SHARE: u64 = 20;
/// Where control groups have limits, the pool gets at most one part in this many of the memory that they leave ...
const LEFT_SHARE: u64 = 4;
/// ... or this part, where strategies must hold pages that they reject.
const HOARD_SHARE: u64 = 2;
/// A chunk, with the pages held, must leave free one part in this many of that memory.
const RESERVE: u64 = 4;
/// If they leave fewer bytes than this, the kernel may be reclaiming pages of the pool.
const SHORT: u64 = 64 << 20;
/// ... and if fewer than this, the pool holds next to nothing.
const SQUEEZED: u64 = 1 << 20;
/// Least number of pages populated at a time: a mapping and its tables cost memory, too.
const LEAST_BATCH: usize = 16;

/// One pool.
pub struct Pool {
    /// Its free pages.
    pub stock: Stock<'static>,
    /// What is known of their frames.
    pub looks: Looks,
    /// Whether its chunks are locked in memory.
    pub pinned: bool,
    /// Whether pages request frames by number: then frames that others may request are kept, and found by number.
    pub exact: bool,
    /// Bytes it may hold; 0: the default.
    budget_bytes: u64,
    /// Whether its strategies reject many of the pages that they hold.
    hoards: bool,
    /// Bytes that the control groups leave it, including those that it holds; `None`: they have no limit.
    left_bytes: Option<u64>,
    /// Number of chunks being populated for it.
    pub ordered: u32,
    /// Bytes of the process's memory outside the pools; looked up where it matters.
    others_bytes: u64,
    /// Number of pages placed out of it.
    pub placed: u64,
    /// Whether some colour ran out.
    pub starving: bool,
    /// Whether some colour is low.
    short: bool,
    /// While the refiller fills it up: the chunks that it may still populate before the next request.
    filling: usize,
    /// Frames that pages request by number, sorted, as far as they are known.
    pub wanted: &'static [u64],
    /// Length of the series of searches for a colour that found none, as a power of two.
    barren: u32,
}

/// The library's own memory for the tables that a stock is given.
pub fn table<T: Zeroed>(entries: usize) -> Result<&'static mut [T]> {
    let memory = Fresh::map_sparse(entries * size_of::<T>())?;
    // A forked child makes its own tables.
    memory.room().hide_from_children()?;
    Ok(memory.into_slice(entries))
}

/// Unmaps a table.
///
/// # Safety
/// The table comes from [`table`], and nothing refers to it any more.
pub unsafe fn give_back<T>(table: &'static mut [T]) {
    let bytes = size_of_val(table).next_multiple_of(PAGE);
    // SAFETY: the caller promises that nothing refers to the table any more.
    let _ = unsafe { sys::munmap(table.as_ptr() as usize, bytes) };
}

// SAFETY: zero bytes are the absent reference.
unsafe impl Zeroed for Option<&'static mut Chunk> {}
// SAFETY: it contains numbers only; zeros make a list without a meaning.
unsafe impl Zeroed for List {}
// SAFETY: it contains numbers, and parts of which zero bytes are a value.
unsafe impl Zeroed for Chunk {}

impl Pool {
    /// An empty pool.
    pub fn new(colours: Colours, spec: &Spec, available: u64) -> Option<Pool> {
        let chunks = table::<Option<&'static mut Chunk>>(MOST_CHUNKS).ok()?;
        let lists = table::<List>(colours.count() as usize).ok()?;
        let stock = Stock::new(colours, chunks, lists).ok()?;
        let exact = spec.kind == StrategyKind::Exact;
        let mut pool = Pool { pinned: spec.pin, exact, ..Pool::of(stock, Looks::none().ok()?) };
        pool.admit(spec, available);
        Some(pool)
    }

    /// A pool without rules.
    fn of(stock: Stock<'static>, looks: Looks) -> Pool {
        Pool {
            stock,
            looks,
            pinned: false,
            exact: false,
            budget_bytes: 0,
            hoards: false,
            left_bytes: None,
            ordered: 0,
            others_bytes: 0,
            placed: 0,
            starving: false,
            short: false,
            filling: 0,
            wanted: &[],
            barren: 0,
        }
    }

    /// An empty pool with the same rules, for another node.
    pub fn twin(&self) -> Option<Pool> {
        let chunks = table::<Option<&'static mut Chunk>>(MOST_CHUNKS).ok()?;
        let lists = table::<List>(self.stock.colours().count() as usize).ok()?;
        let stock = Stock::new(*self.stock.colours(), chunks, lists).ok()?;
        let (pinned, exact, hoards) = (self.pinned, self.exact, self.hoards);
        let (budget_bytes, wanted) = (self.budget_bytes, self.wanted);
        Some(Pool { pinned, exact, hoards, budget_bytes, wanted, ..Pool::of(stock, Looks::none().ok()?) })
    }

    /// Sorts its pages by another colour function, for `spec`: no other strategy takes pages from the pool any more.
    pub fn recolour(&mut self, colours: Colours, spec: &Spec, available: u64) -> Option<()> {
        let lists = table::<List>(colours.count() as usize).ok()?;
        let old = self.stock.recolour(colours, lists).ok()?;
        // SAFETY: the old lists are a table from `table`, and nothing refers to them any more.
        unsafe { give_back(old) };
        (self.budget_bytes, self.wanted, self.exact) = (0, &[], spec.kind == StrategyKind::Exact);
        self.hoards = false;
        self.admit(spec, available);
        Some(())
    }

    /// Whether pages for `spec` can come from this pool.
    pub fn suits(&self, colours: &Colours, spec: &Spec) -> bool {
        let exact = spec.kind == StrategyKind::Exact;
        self.stock.colours() == colours && (self.pinned, self.exact) == (spec.pin, exact)
    }

    /// Adds a strategy that takes its pages from this pool.
    pub fn admit(&mut self, spec: &Spec, available: u64) {
        let wanted = match spec.kind {
            _ if spec.budget_bytes > 0 => spec.budget_bytes,
            kind if kind.facts().is_particular => available / 4,
            _ => 0,
        };
        self.budget_bytes = self.budget_bytes.max(wanted);
        self.hoards |= spec.kind.facts().is_particular;
    }

    /// Bytes that it may hold now.
    pub fn budget_bytes(&self) -> u64 {
        self.most_bytes().min(self.room_bytes())
    }

    /// Bytes that it may hold if memory is not short.
    pub fn most_bytes(&self) -> u64 {
        match self.budget_bytes {
            0 => BUDGET.max(self.others_bytes / BUDGET_SHARE),
            bytes => bytes,
        }
    }

    /// Whether its budget depends on how much memory the process has.
    pub fn is_measured(&self) -> bool {
        self.budget_bytes == 0 && self.held_bytes() + (CHUNK_SLOTS * PAGE) as u64 > BUDGET
    }

    /// Records the bytes that the control groups leave, besides those that the pool holds.
    pub fn left(&mut self, left: Option<u64>) {
        self.left_bytes = left.map(|left| left + self.held_bytes());
    }

    /// The pool's share of them.
    fn room_bytes(&self) -> u64 {
        match self.left_bytes {
            None => u64::MAX,
            Some(all) if self.hoards => all / HOARD_SHARE,
            Some(all) => all / LEFT_SHARE,
        }
    }

    /// Whether the control groups leave so little that the pool holds next to nothing, and nothing is placed ahead.
    pub fn is_squeezed(&self) -> bool {
        self.left_bytes.is_some_and(|bytes| bytes < SQUEEZED)
    }

    /// Whether the refiller works for it. If it cannot keep a chunk, pages fetched ahead would be thrown away again.
    fn is_filled_ahead(&self) -> bool {
        !self.is_limited() || self.budget_bytes() >= (CHUNK_SLOTS * PAGE) as u64
    }

    /// Whether the control groups may soon reclaim memory.
    pub fn is_short_of_memory(&self) -> bool {
        self.left_bytes.is_some_and(|bytes| bytes < SHORT)
    }

    /// Whether memory may become short here sooner than elsewhere: a control group has a limit.
    pub fn is_limited(&self) -> bool {
        self.left_bytes.is_some()
    }

    /// Number of pages to make room for before populating: a chunk, or half of the budget if that is less.
    fn batch(&self) -> usize {
        let pages = usize::try_from(self.budget_bytes() / PAGE as u64).unwrap_or(usize::MAX);
        if pages >= CHUNK_SLOTS { CHUNK_SLOTS } else { (pages / 2).max(LEAST_BATCH) }
    }

    /// Number of pages to populate at a time. A whole chunk has all colours, and its surplus is given back at once; but
    /// even for that moment it must fit into the memory that the control groups leave.
    pub fn order_pages(&self) -> usize {
        let fits = |all| {
            let chunks = u64::from(self.ordered) + 1;
            self.held_bytes() + chunks * (CHUNK_SLOTS * PAGE) as u64 <= all - all / RESERVE
        };
        match self.batch() {
            _ if self.left_bytes.is_none_or(fits) => CHUNK_SLOTS,
            CHUNK_SLOTS => 4 * LEAST_BATCH,
            less => less,
        }
    }

    /// Records the bytes that the process has besides the pools.
    pub fn measured(&mut self, others_bytes: u64) {
        self.others_bytes = others_bytes;
    }

    /// Most chunks that may be populated in the search for one page, before another page is taken: as many as the
    /// budget allows. After searches in vain, the number becomes smaller.
    pub fn patience(&self) -> usize {
        if self.is_squeezed() {
            return 0;
        }
        let chunks = (self.budget_bytes() / (CHUNK_SLOTS * PAGE) as u64).clamp(2, MOST_HUNTED) as usize;
        // Less than a chunk mostly consists of the frames that were given back just now.
        let turns = if self.order_pages() < CHUNK_SLOTS { SMALL_TURNS } else { chunks };
        turns >> self.barren.min(usize::BITS - 1)
    }

    /// As [`Pool::patience`], for a page that must be supplied.
    pub fn turns(&self) -> usize {
        self.patience().max(usize::from(self.stock.totals().free == 0))
    }

    /// Records whether a search has found a page.
    pub fn found(&mut self, found: bool) {
        self.barren = if found { 0 } else { (self.barren + 1).min(MOST_BARREN) };
    }

    /// Looks up the frames of the free pages of chunk `number` again. Pages that are not in memory any more are given
    /// up: the kernel would choose the frames on which they come back. Returns how many were not on their previous
    /// frames.
    pub fn sort_anew(&mut self, pagemap: Pagemap, number: u32, frames: &mut [u64; CHUNK_SLOTS]) -> u64 {
        let Some(address) = self.stock.chunk_address(number) else { return 0 };
        if pagemap.read(address, frames).is_err() {
            return 0;
        }
        let mut changed = 0;
        for (index, frame) in (0..).zip(frames.iter()) {
            let slot = SlotId::new(number, index);
            changed +=
                u64::from(self.stock.state(slot) == Some(State::Free) && self.stock.frame(slot) != Some(*frame));
            if self.stock.refresh(slot, *frame) == Err(Refused::Frame) && self.stock.take_this(slot) {
                let page = address + index as usize * PAGE;
                chunks::discard(Span::new(page, page + PAGE));
                self.stock.emptied(Run::one(slot));
            }
        }
        changed
    }

    /// Bytes it holds.
    pub fn held_bytes(&self) -> u64 {
        let totals = self.stock.totals();
        u64::from(totals.free + totals.held) * PAGE as u64
    }

    /// Whether it must not take in another chunk, counting those being populated.
    pub fn is_full(&self) -> bool {
        let batches = u64::from(self.ordered) + 1;
        self.held_bytes() + batches * (self.batch() * PAGE) as u64 > self.budget_bytes()
    }

    /// Whether it holds more than its budget, where control groups have limits. The pages of the smallest order stay: a
    /// fault waits for them.
    pub fn exceeds(&self) -> bool {
        self.is_limited() && self.held_bytes() > self.budget_bytes().max((LEAST_BATCH * PAGE) as u64)
    }

    /// Number of free pages to fill up to: more when more were placed, and one of each colour if that is not too much.
    pub fn high(&self) -> u32 {
        let room = (self.budget_bytes() / PAGE as u64).try_into().unwrap_or(u32::MAX);
        let wanted = u32::try_from(self.placed / 4).unwrap_or(u32::MAX);
        let lowest = self.stock.colours().count().clamp(LOWEST_HIGH, HIGHEST_HIGH);
        wanted.clamp(lowest, HIGHEST_HIGH).min(room)
    }

    fn low_part(&self) -> u32 {
        if self.placed / 4 <= u64::from(LOWEST_HIGH) { SMALL_LOW_PART } else { LOW_PART }
    }

    /// Records that a page wanted `want`, whatever it got.
    pub fn asked(&mut self, want: Want) {
        if let Want::Colour(colour) = want {
            self.stock.ask(colour);
            self.short |= self.stock.is_short(colour, self.high(), self.low_part());
        }
    }

    /// Whether to call the refiller; if so, also sets how many chunks it may populate.
    pub fn needs_refill(&mut self) -> bool {
        if !self.is_filled_ahead() {
            return false;
        }
        let low = self.starving
            || core::mem::take(&mut self.short)
            || self.stock.totals().free < self.high() / SMALL_LOW_PART;
        if low {
            self.filling = self.patience();
        }
        low
    }

    /// Whether the refiller has been called to fill it up.
    pub fn is_filling(&self) -> bool {
        self.filling > 0
    }

    /// Whether filling up cannot wait, when so many pages were placed in the last moment.
    pub fn is_pressed(&self, of_late: u64) -> bool {
        let high = self.high();
        let soon = u32::try_from(of_late).unwrap_or(u32::MAX).saturating_mul(MOMENTS_AHEAD);
        let free = self.stock.totals().free;
        self.starving
            || free < soon
            || free * PRESSED_PART < high
            || self.stock.short_colour(high, PRESSED_PART).is_some()
            || self.stock.runs_out(soon)
    }

    /// Whether the refiller is to populate another chunk for it. Colours are filled up to their goals; if that means
    /// throwing other pages away, only low colours are. The refiller gives up on colours that it cannot find.
    pub fn takes_more(&mut self) -> bool {
        if self.filling == 0 || !self.is_filled_ahead() {
            return false;
        }
        let (high, free) = (self.high(), self.stock.totals().free);
        let part = if self.is_full() { self.low_part() } else { 1 };
        let takes = self.starving || free * part < high || self.stock.short_colour(high, part).is_some();
        self.filling = if takes { self.filling - 1 } else { 0 };
        takes
    }
}

/// Bookkeeping of chunks: memory for [`Chunk`]s, and the unused ones.
pub struct Books {
    /// Mapped and not handed out yet. (`None` instead of an empty list: zeros take no space in the library's file.)
    fresh: Option<&'static mut [Chunk]>,
    spare: [Option<&'static mut Chunk>; SPARE],
}

const SPARE: usize = 256;
/// Chunks whose bookkeeping is mapped at a time.
const AT_ONCE: usize = 64;

impl Books {
    /// No memory mapped.
    pub const fn new() -> Books {
        Books { fresh: None, spare: [const { None }; SPARE] }
    }

    /// Takes memory for one chunk.
    pub fn take(&mut self) -> Result<&'static mut Chunk> {
        if let Some(chunk) = self.spare.iter_mut().find_map(Option::take) {
            return Ok(chunk);
        }
        let fresh = match self.fresh.take() {
            Some(fresh) => fresh,
            None => table(AT_ONCE)?,
        };
        let (chunk, rest) = fresh.split_first_mut().ok_or(Errno::ENOMEM)?;
        self.fresh = (!rest.is_empty()).then_some(rest);
        Ok(chunk)
    }

    /// Gives it back (beyond a certain number it is lost: 8 KiB each).
    pub fn give_back(&mut self, chunk: &'static mut Chunk) {
        if let Some(place) = self.spare.iter_mut().find(|place| place.is_none()) {
            *place = Some(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_frames::stock::End;

    const MIB: u64 = 1 << 20;

    fn pool(kind: StrategyKind, budget_bytes: u64) -> Pool {
        let mut spec = Spec::plain(kind, 64);
        spec.budget_bytes = budget_bytes;
        Pool::new(Colours::low_bits(64).unwrap(), &spec, 64 * MIB).unwrap()
    }

    #[test]
    fn a_pool_follows_what_control_groups_leave() {
        let mut pool = pool(StrategyKind::PageColoring, 0);
        assert_eq!((pool.budget_bytes(), pool.order_pages(), pool.is_limited()), (64 * MIB, 512, false));
        pool.left(Some(1 << 30));
        assert_eq!((pool.budget_bytes(), pool.order_pages()), (64 * MIB, 512), "plenty");
        assert!(pool.is_filled_ahead() && !pool.is_short_of_memory());
        pool.left(Some(6 * MIB));
        assert_eq!((pool.budget_bytes(), pool.order_pages()), (3 * MIB / 2, 512));
        assert!(!pool.is_filled_ahead() && pool.is_short_of_memory() && !pool.is_squeezed());
        pool.ordered = 2;
        assert_eq!(pool.order_pages(), 192, "with two on the way a third chunk does not fit");
        pool.ordered = 0;
        pool.left(Some(2 * MIB));
        assert_eq!((pool.budget_bytes(), pool.order_pages(), pool.patience()), (MIB / 2, 64, SMALL_TURNS));
        pool.left(Some(MIB / 2));
        assert!(pool.is_squeezed() && !pool.needs_refill());
        assert_eq!((pool.order_pages(), pool.patience(), pool.turns()), (LEAST_BATCH, 0, 1));
        pool.left(Some(0));
        assert_eq!(
            (pool.budget_bytes(), pool.order_pages()),
            (0, LEAST_BATCH),
            "a fault's page must come from somewhere"
        );
        assert_eq!(pool.most_bytes(), 64 * MIB);
        pool.left(None);
        assert_eq!((pool.budget_bytes(), pool.is_limited()), (64 * MIB, false));
    }

    #[test]
    fn hoards_get_half_and_no_budget_is_more_than_there_is() {
        let mut hoard = pool(StrategyKind::Modulo, 8 * MIB);
        hoard.left(Some(6 * MIB));
        assert_eq!((hoard.budget_bytes(), hoard.order_pages()), (3 * MIB, 512));
        hoard.ordered = 2;
        assert_eq!(hoard.order_pages(), 4 * LEAST_BATCH);
        let mut asked = pool(StrategyKind::Random, 8 * MIB);
        asked.left(Some(16 * MIB));
        assert_eq!((asked.budget_bytes(), asked.most_bytes()), (4 * MIB, 8 * MIB));
    }

    #[test]
    fn filling_up_waits_until_the_pool_would_run_out() {
        let mut pool = pool(StrategyKind::PageColoring, 0);
        for number in 0..4u32 {
            let book = Box::leak(Box::new(Chunk::new()));
            assert_eq!(pool.stock.add_chunk(book, (number as usize) << 21), Ok(number));
            for index in 0..CHUNK_SLOTS as u32 {
                let frame = 512 + u64::from(number * 512 + index);
                pool.stock.add(SlotId::new(number, index), frame, End::Back).unwrap();
            }
        }
        pool.placed = 8 * 2048;
        assert_eq!((pool.high(), pool.stock.totals().free), (4096, 2048));
        let soon = u64::from(MOMENTS_AHEAD);
        assert_eq!([0, 2048 / soon, 2048 / soon + 1].map(|pages| pool.is_pressed(pages)), [false, false, true]);
        // There are 32 pages of one colour, and only this colour is requested.
        (0..4).for_each(|_| pool.asked(Want::Colour(3)));
        assert_eq!([32 / soon, 32 / soon + 1].map(|pages| pool.is_pressed(pages)), [false, true]);
        pool.starving = true;
        assert!(pool.is_pressed(0));
        pool.starving = false;
        while pool.stock.totals().free >= 1024 {
            pool.stock.take_any().unwrap();
        }
        assert!(pool.is_pressed(0), "less than a quarter");
    }
}
