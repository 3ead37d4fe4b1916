//! Rounds of a path, of which the least counts, and the clock they are measured by.

use std::time::Instant;

use crate::clock::time_stamp;

/// Rounds of a measurement. lmbench has eleven, `kernel/cost` seven.
const ROUNDS: u64 = 7;
/// How often they are repeated for a path that seems to take less than its overhead, because other processes disturbed
/// all of its overhead's rounds.
const ATTEMPTS: u64 = 10;

/// The reason why a row has no value.
#[derive(Debug)]
pub enum Failure {
    /// Nothing of the kind is on this machine: the row is left out.
    Impossible(String),
    /// Its overhead alone takes as long as all of it: with the memory that its processes have, or because others
    /// disturbed it. With other processes it may be different.
    Hidden,
    Failed(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Failed(why)
    }
}

/// The clock of a round.
#[derive(Clone, Copy)]
pub enum Clock {
    /// Nanoseconds since the instant.
    Time(Instant),
    /// The time-stamp counter.
    Tsc,
}

impl Clock {
    fn now(self) -> u64 {
        match self {
            Clock::Time(begin) => begin.elapsed().as_nanos() as u64,
            Clock::Tsc => time_stamp(),
        }
    }
}

/// Work, which returns a count that proves it.
type Work = Box<dyn FnMut() -> Result<u64, String>>;

/// Work that a round needs and that does not belong to it.
type Preparation = Box<dyn FnMut() -> Result<(), String>>;

/// A path that is ready: dropping it ends its processes and gives its memory and files back.
pub struct Path {
    /// Operations of a round; bytes where a row is per KiB.
    pub operations: u64,
    round: Work,
    /// The result that each round must return.
    each: u64,
    before: Preparation,
    overhead: Option<Work>,
}

impl Path {
    /// Rounds of so many operations, each of which returns `each`.
    pub fn new(operations: u64, each: u64, round: impl FnMut() -> Result<u64, String> + 'static) -> Path {
        Path { operations, round: Box::new(round), each, before: Box::new(|| Ok(())), overhead: None }
    }

    /// Calls this before each round.
    pub fn before(mut self, before: impl FnMut() -> Result<(), String> + 'static) -> Path {
        self.before = Box::new(before);
        self
    }

    /// Takes off what this costs.
    pub fn less(mut self, overhead: impl FnMut() -> Result<u64, String> + 'static) -> Path {
        self.overhead = Some(Box::new(overhead));
        self
    }

    /// What each round must return.
    pub fn expected(&self) -> u64 {
        self.each
    }

    /// Ticks of the least round, minus those of the least round of the overhead; and the result of a round: a wrong
    /// one, if there is any.
    pub fn least(&mut self, clock: Clock) -> Result<(f64, u64), Failure> {
        let nothing: &mut Preparation = &mut (Box::new(|| Ok(())) as Preparation);
        let (mut all, mut off) = (Least::new(self.each), Least::new(self.each));
        for _ in 0..ATTEMPTS {
            all.measure(clock, &mut self.round, &mut self.before)?;
            match &mut self.overhead {
                Some(overhead) => off.measure(clock, overhead, nothing)?,
                None => off.ticks = 0,
            }
            if off.ticks < all.ticks {
                let returned = if off.returned == self.each { all.returned } else { off.returned };
                return Ok(((all.ticks - off.ticks) as f64, returned));
            }
        }
        Err(Failure::Hidden)
    }

    /// One round more, in a window of the caches behind an emulated machine, which see the one before it, too.
    pub fn in_window(&mut self) -> Result<(), String> {
        let page = super::system::Marks::map()?;
        (self.before)()?;
        page.begin();
        (self.round)()?;
        (self.before)()?;
        page.open();
        let returned = (self.round)();
        page.close();
        returned.map(|_| ())
    }
}

/// The least of several rounds.
struct Least {
    ticks: u64,
    must_return: u64,
    returned: u64,
}

impl Least {
    fn new(must_return: u64) -> Least {
        Least { ticks: u64::MAX, must_return, returned: must_return }
    }

    /// Further rounds, after one that is not measured.
    fn measure(&mut self, clock: Clock, work: &mut Work, before: &mut Preparation) -> Result<(), String> {
        before()?;
        work()?;
        for _ in 0..ROUNDS {
            before()?;
            let begin = clock.now();
            let returned = std::hint::black_box(work())?;
            self.ticks = self.ticks.min(clock.now() - begin);
            if returned != self.must_return {
                self.returned = returned;
            }
        }
        Ok(())
    }
}
