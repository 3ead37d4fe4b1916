//! The strategies of a policy's axis `frames`, with their lists.

use pagelab_abi::plan::Parameter;
use pagelab_frames::strategy::{Exact, Modulo, Numbered, Numbers, Spans, Strategy as _};
use pagelab_frames::{Colours, Want, Words};
use pagelab_policy::types::{ByPage, FirstBin, Frames, Span, Strategy as Named};

const PAGE_BYTES: u64 = 1 << super::PAGE_BITS;

/// Words as the strategies read them: little-endian bytes.
#[derive(Clone, Debug, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn push(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn words(&self) -> Words<'_> {
        Words::new(&self.0)
    }
}

/// Values by address: spans (start, pages, first value), and the values, one for each page.
#[derive(Clone, Debug, Default)]
struct Table {
    spans: Bytes,
    values: Bytes,
}

impl Table {
    fn new<T: Copy>(spans: &[Span<T>], word: impl Fn(T) -> u64) -> Table {
        let (mut table, mut count) = (Table::default(), 0);
        for span in spans {
            [span.start.0, span.values.len() as u64, count].into_iter().for_each(|value| table.spans.push(value));
            span.values
                .iter()
                .for_each(|value| table.values.push(value.map_or(pagelab_abi::plan::ANYWHERE, &word)));
            count += span.values.len() as u64;
        }
        table
    }

    fn spans(&self) -> Spans<'_> {
        Spans::new(self.spans.words(), self.values.words())
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Kernel,
    ByNumbers {
        strategy: Numbered,
        /// Whether each address space has its own random draws.
        draws_by_address: bool,
    },
    Pattern(Bytes),
    Colours(Table),
    Frames(Table),
}

/// A strategy ready to be asked.
#[derive(Clone, Debug)]
pub struct Strategy {
    kind: Kind,
    colours: Colours,
    largest_frame: Option<u64>,
    shares_frames: bool,
}

impl Strategy {
    /// The kernel's own choice of frames.
    pub const KERNEL: Strategy =
        Strategy { kind: Kind::Kernel, colours: Colours::ONE, largest_frame: None, shares_frames: false };

    /// The strategy of a policy's `frames` in an execution with this seed. The seed is mixed into those of `random` and
    /// of a bin hopping that draws its first bin. `colours` is the number of colours if the policy leaves it to the
    /// machine.
    ///
    /// # Errors
    /// Modules, lists of exact frames, and impossible numbers of colours.
    pub fn new(frames: &Frames, colours: u32, seed: u64) -> Result<Strategy, String> {
        use pagelab_policy::types::Colours as Given;
        let function = match &frames.colours {
            Given::Machine => Colours::low_bits(colours),
            Given::Count(count) => Colours::low_bits(*count),
            Given::Cache { bytes, ways } => {
                let count = (bytes.0 / u64::from((*ways).max(1)) / PAGE_BYTES).max(1);
                u32::try_from(count).ok().and_then(Colours::low_bits)
            }
            Given::Masks(masks) => Colours::masked(masks.iter().copied()),
        };
        let function = function.ok_or_else(|| "frames: there are not that many colours".to_owned())?;
        let count = function.count();
        let kind = match &frames.strategy {
            Named::Kernel => Kind::Kernel,
            Named::ByNumbers(numbers) => {
                let (first, own) = match numbers.first {
                    FirstBin::Colour(first) => (Some(first), numbers.seed),
                    FirstBin::Seed(own) => (None, own),
                };
                let told = Numbers {
                    colours: count,
                    first,
                    seed: own.wrapping_add(seed),
                    hashed_pid: numbers.hash_pid.then_some(seed as u32),
                };
                let strategy = Numbered::new(numbers.kind, told)
                    .ok_or_else(|| format!("frames = {}: it needs lists", numbers.kind.name()))?;
                let draws_by_address = strategy.is_by_address() && numbers.kind.takes(Parameter::Seed);
                Kind::ByNumbers { strategy, draws_by_address }
            }
            Named::Modulo { colours: ByPage::List(list) } => {
                let mut bytes = Bytes::default();
                list.iter().for_each(|colour| bytes.push(u64::from(colour.0)));
                Kind::Pattern(bytes)
            }
            Named::Modulo { colours: ByPage::Spans(spans) } => {
                Kind::Colours(Table::new(spans, |colour| u64::from(colour.0)))
            }
            Named::Exact { frames: ByPage::Spans(spans) } => Kind::Frames(Table::new(spans, |frame| frame.0)),
            Named::Exact { frames: ByPage::List(_) } => {
                return Err(
                    "frames = exact: a list counts from a pool; simulate a saved map (exact:map=FILE)".to_owned()
                );
            }
            Named::Module { .. } => {
                return Err("frames = module: shared objects are not loaded into the simulator".to_owned());
            }
        };
        let mut strategy = Strategy { kind, colours: function, largest_frame: None, shares_frames: false };
        strategy.look_at_frames();
        Ok(strategy)
    }

    fn look_at_frames(&mut self) {
        let Kind::Frames(table) = &self.kind else { return };
        let anywhere = pagelab_abi::plan::ANYWHERE;
        let mut frames: Vec<u64> = table.values.words().iter().filter(|frame| *frame != anywhere).collect();
        let all = frames.len();
        frames.sort_unstable();
        frames.dedup();
        self.largest_frame = frames.last().copied();
        self.shares_frames = frames.len() < all;
    }

    /// The want of page `vpn`. Values of saved maps are those of address space 0.
    pub(crate) fn want(&mut self, asid: u16, vpn: u64) -> Want {
        match &mut self.kind {
            Kind::Kernel => Want::Any,
            Kind::ByNumbers { strategy, draws_by_address: true } => strategy.want(vpn ^ u64::from(asid) << 44),
            Kind::ByNumbers { strategy, .. } => strategy.want(vpn),
            Kind::Pattern(bytes) => Modulo::repeating(self.colours.count(), bytes.words()).want(vpn),
            Kind::Colours(table) if asid == 0 => Modulo::replaying(self.colours.count(), table.spans()).want(vpn),
            Kind::Frames(table) if asid == 0 => Exact::new(table.spans()).want(vpn),
            Kind::Colours(_) | Kind::Frames(_) => Want::Any,
        }
    }

    /// Definition of colours.
    #[must_use]
    pub const fn colours(&self) -> &Colours {
        &self.colours
    }

    /// The largest frame that it names: other pages get frames beyond it.
    #[must_use]
    pub const fn largest_frame(&self) -> Option<u64> {
        self.largest_frame
    }

    /// Whether the colours that it wants come from a saved map.
    #[must_use]
    pub(crate) const fn replays_colours(&self) -> bool {
        matches!(self.kind, Kind::Colours(_))
    }

    /// Whether two pages may get the same frame: with a saved map of a process that shares pages.
    #[must_use]
    pub const fn shares_frames(&self) -> bool {
        self.shares_frames
    }
}
