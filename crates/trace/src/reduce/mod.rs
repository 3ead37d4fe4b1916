//! Exact reduction: drops references that do not affect memories above a stated size.
//!
//! Kaplan, Smaragdakis and Wilson, "Trace reduction for virtual memory simulations" (SIGMETRICS 1999), call it Safely
//! Allowed Drop. Of three references to a page that follow each other, the middle one may go if fewer than `k` other
//! pages are referenced between the first and the third: an LRU memory of `k` pages or more keeps the page all the
//! while, whether the middle one is there or not, and what it evicts is the same. (OPT's faults stay the same as well;
//! FIFO's, CLOCK's and random replacement's need not.)
//!
//! With colours, each colour is an LRU memory of its own with its share of the pages, so the test is made among the
//! pages of the same colour, for each number of colours; a reference goes only if all allow it.
//!
//! One pass; memory in the order of the stated size. What is dropped is added to the count of the page's next run, so
//! that the sum of the counts stays the number of references.

mod links;
mod pages;
mod pending;

use crate::error::TraceError;
use crate::format::Reduction;
use crate::run::Run;
use crate::source::{Result, RunSource};
use links::{Lists, NONE};
use pages::Pages;
use pending::Pending;

/// One number of colours: an LRU list for each colour.
struct Colouring {
    colours: u64,
    lists: Lists,
    /// Pages of a colour's share, and one more: the time of the last one is the boundary.
    capacity: usize,
    /// Whether the number of colours is a power of two: then a mask does.
    mask: Option<u64>,
}

impl Colouring {
    fn new(colours: u32, memory_pages: u64) -> Colouring {
        let share = usize::try_from(memory_pages / u64::from(colours)).unwrap_or(usize::MAX - 1);
        let mask = colours.is_power_of_two().then(|| u64::from(colours) - 1);
        Colouring { colours: u64::from(colours), lists: Lists::new(colours as usize), capacity: share + 1, mask }
    }

    #[inline]
    fn colour(&self, number: u64) -> usize {
        match self.mask {
            Some(mask) => (number & mask) as usize,
            None => (number % self.colours) as usize,
        }
    }

    /// The time of the last reference to the page with one more than a share's pages above it; 0 where there is none.
    /// References before that time are too old to be the first of three.
    #[inline]
    fn boundary(&self, number: u64, pages: &Pages) -> u64 {
        let colour = self.colour(number);
        if self.lists.length(colour) < self.capacity {
            return 0;
        }
        match self.lists.back(colour) {
            NONE => 0,
            last => pages.last(last),
        }
    }
}

/// Reduces a source of runs.
pub struct Reduced<S> {
    source: S,
    reduction: Reduction,
    colourings: Vec<Colouring>,
    pages: Pages,
    pending: Pending,
    time: u64,
    runs: Vec<Run>,
    done: bool,
}

/// More pages than that would not fit in the tables.
const MOST_PAGES: u64 = 1 << 31;

impl<S: RunSource> Reduced<S> {
    /// What is left of `source`, exact for LRU memories of `memory_pages` pages and more, in each of these numbers of
    /// colours; every colour must have at least one page.
    pub fn new(source: S, memory_pages: u64, colours: &[u32]) -> Result<Self> {
        let mut colours = colours.to_vec();
        colours.sort_unstable();
        colours.dedup();
        if colours.first().is_none_or(|least| *least == 0) || memory_pages > MOST_PAGES {
            return Err(TraceError::Invalid(format!(
                "a trace is reduced for at least one number of colours, from 1 up, and at most {MOST_PAGES} pages"
            )));
        }
        if let Some(most) = colours.last().filter(|most| u64::from(**most) > memory_pages) {
            return Err(TraceError::Invalid(format!("{memory_pages} pages cannot have {most} colours")));
        }
        Ok(Reduced {
            source,
            colourings: colours.iter().map(|colours| Colouring::new(*colours, memory_pages)).collect(),
            pages: Pages::default(),
            reduction: Reduction { memory_pages, colours },
            pending: Pending::default(),
            time: 0,
            runs: Vec::new(),
            done: false,
        })
    }

    /// The memories and colours for which the result is exact, for its header.
    pub fn reduction(&self) -> &Reduction {
        &self.reduction
    }

    fn reference(&mut self, run: Run) {
        self.time += 1;
        let number = run.number();
        let node = self.pages.find_or_add(run.page);
        let (first, waiting) = (self.pages.first(node), self.pages.entry(node));
        let allowed = first != 0
            && waiting != NONE
            && self.colourings.iter().all(|colouring| colouring.boundary(number, &self.pages) < first);
        let mut count = run.count;
        let before = if allowed {
            count += self.pending.remove(waiting);
            first
        } else {
            if waiting != NONE {
                self.pending.settle(waiting);
            }
            self.pages.last(node)
        };
        let entry = self.pending.push(run.page, count, before);
        self.pages.reference(node, self.time, before, entry);
        for colouring in &mut self.colourings {
            let colour = colouring.colour(number);
            let (new, left) = colouring.lists.touch(colour, node, colouring.capacity);
            if new {
                self.pages.enter(node);
            }
            if left != NONE {
                self.pages.leave(left);
            }
        }
        self.emit();
    }

    /// Returns the runs that can no longer be dropped.
    fn emit(&mut self) {
        while let Some(front) = self.pending.front() {
            let number = Run { page: front.page, count: 1 }.number();
            let may_go = !front.settled
                && front.before != 0
                && self.colourings.iter().all(|colouring| colouring.boundary(number, &self.pages) < front.before);
            if may_go {
                return;
            }
            self.give();
        }
    }

    fn give(&mut self) {
        let (slot, entry) = self.pending.pop();
        if !entry.settled {
            self.pages.given(entry.page, slot);
        }
        self.runs.push(Run { page: entry.page, count: entry.count });
    }
}

impl<S: RunSource> RunSource for Reduced<S> {
    fn page_bits(&self) -> u32 {
        self.source.page_bits()
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.runs.clear();
        while self.runs.is_empty() && !self.done {
            // The batch is copied: the source's buffer and the tables cannot be borrowed together.
            let batch = match self.source.next_runs() {
                Ok(batch) => batch.map(<[Run]>::to_vec),
                Err(error) => {
                    self.done = true;
                    return Err(error);
                }
            };
            match batch {
                Some(batch) => batch.into_iter().for_each(|run| self.reference(run)),
                None => {
                    while self.pending.front().is_some() {
                        self.give();
                    }
                    self.done = true;
                }
            }
        }
        Ok((!self.runs.is_empty()).then_some(&self.runs))
    }
}
