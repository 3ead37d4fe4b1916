//! Known answers of each strategy from the papers.

use core::ffi::{c_char, c_int, c_void};
use std::vec::Vec;

use pagelab_abi::plan::{ANYWHERE, FIRST_FROM_SEED, PlanSpec, RunSpec, SectionSpec, Span, StrategySpec};
use pagelab_abi::plan::{Memory, Plan, StrategyKind, Via, Words};
use proptest::{prop_assert_eq, proptest};

use super::*;
use crate::Colours;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn colours(strategy: &mut impl Strategy, pages: impl IntoIterator<Item = u64>) -> Vec<u32> {
    let colour = |vpn| match strategy.want(vpn) {
        Want::Colour(colour) => colour,
        other => panic!("{other:?}"),
    };
    pages.into_iter().map(colour).collect()
}

#[test]
fn page_colouring_is_the_virtual_colour() {
    // ALLOC, section 2: the four least significant bits of the page index on its Pentium 4 (16 colours).
    let mut strategy = PageColoring::new(16);
    assert_eq!(colours(&mut strategy, [0, 5, 15, 16, 0x7_fff1_2345]), [0, 5, 15, 0, 5]);
    assert_eq!(colours(&mut PageColoring::new(12), 10..15), [10, 11, 0, 1, 2]);
    assert_eq!((strategy.is_by_address(), strategy.period()), (true, 16));
}

#[test]
fn hashing_the_process_id_turns_the_colours_and_keeps_runs() {
    let first = |pid| colours(&mut PageColoring::hashed(24, pid), [0])[0];
    let firsts: std::collections::BTreeSet<u32> = (1..200).map(first).collect();
    assert!(firsts.len() > 20, "processes are kept apart: {firsts:?}");
    for pid in 1..200 {
        let turned = colours(&mut PageColoring::hashed(24, pid), 100..148);
        assert!(turned.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 24));
        assert_eq!(turned, colours(&mut PageColoring::hashed(24, pid), 100..148), "the same for the same process");
    }
}

#[test]
fn bin_hopping_takes_the_bins_in_turn_whatever_the_address() {
    let mut strategy = BinHopping::starting_at(4, 2);
    assert_eq!(colours(&mut strategy, [900, 3, 3, 77, 1, 0]), [2, 3, 0, 1, 2, 3]);
    strategy.take_back(3);
    assert_eq!(colours(&mut strategy, [0, 0]), [1, 2]);
    strategy.take_back(6);
    assert_eq!(colours(&mut strategy, [0]), [1]);
    assert_eq!((strategy.is_by_address(), strategy.period()), (false, 1));
    assert_eq!(colours(&mut BinHopping::starting_at(4, 7), [0]), [3]);
    let firsts: std::collections::BTreeSet<u32> =
        (0..200).flat_map(|seed| colours(&mut BinHopping::seeded(8, seed), [0])).collect();
    assert_eq!(firsts, (0..8).collect());
}

#[test]
fn modulo_repeats_its_pattern_over_the_addresses() {
    let values = bytes(&[7, 7, 1, ANYWHERE]);
    let mut strategy = Modulo::repeating(8, Words::new(&values));
    assert_eq!(colours(&mut strategy, [0, 1, 2, 4, 6, 4_000_001]), [7, 7, 1, 7, 1, 7]);
    assert_eq!(strategy.want(3), Want::Any);
    assert_eq!((strategy.is_by_address(), strategy.period()), (true, 4));
    assert_eq!(Modulo::repeating(8, Words::default()).want(3), Want::Any);
    let beyond = bytes(&[9]);
    assert_eq!(Modulo::repeating(8, Words::new(&beyond)).want(0), Want::Colour(1), "never beyond the colours");
}

#[test]
fn page_colouring_is_a_special_case_of_modulo() {
    // ALLOC, section 3.
    let values = bytes(&(0..16).collect::<Vec<_>>());
    let mut modulo = Modulo::repeating(16, Words::new(&values));
    assert_eq!(colours(&mut modulo, 0..1000), colours(&mut PageColoring::new(16), 0..1000));
}

#[test]
fn saved_maps_are_replayed() {
    let spans = bytes(&[0x10_0000, 3, 0, 0x20_0000, 2, 3]);
    let values = bytes(&[50, ANYWHERE, 52, 60, 61]);
    let spans = Spans::new(Words::new(&spans), Words::new(&values));
    let mut exact = Exact::new(spans);
    let wants: Vec<Want> =
        [0x100, 0x101, 0x102, 0x103, 0xff, 0x200, 0x201, 0x202, 0x100, 0].map(|vpn| exact.want(vpn)).into();
    use Want::{Any, Frame};
    assert_eq!(wants, [Frame(50), Any, Frame(52), Any, Any, Frame(60), Frame(61), Any, Frame(50), Any]);
    assert_eq!((exact.is_by_address(), exact.period()), (true, 0));
    let mut modulo = Modulo::replaying(16, spans);
    assert_eq!([0x100, 0x101, 0x201].map(|vpn| modulo.want(vpn)), [Want::Colour(2), Any, Want::Colour(13)]);
    assert_eq!(modulo.period(), 0);
}

#[test]
fn torn_maps_leave_pages_to_any_frame() {
    let spans = bytes(&[0x10_0000, 3, 1]);
    let values = bytes(&[50, 51]);
    let mut exact = Exact::new(Spans::new(Words::new(&spans), Words::new(&values)));
    assert_eq!([0x100, 0x101, 0x102].map(|vpn| exact.want(vpn)), [Want::Frame(51), Want::Any, Want::Any]);
    let huge = bytes(&[0x10_0000, u64::MAX, u64::MAX]);
    assert_eq!(Exact::new(Spans::new(Words::new(&huge), Words::new(&values))).want(u64::MAX), Want::Any);
    assert_eq!(Exact::new(Spans::new(Words::default(), Words::default())).want(1), Want::Any);
}

#[test]
fn random_depends_on_seed_and_address_alone() {
    let forwards = colours(&mut Random::new(16, 1), 0..4096);
    let mut backwards = colours(&mut Random::new(16, 1), (0..4096).rev());
    backwards.reverse();
    assert_eq!(forwards, backwards);
    assert_ne!(forwards, colours(&mut Random::new(16, 2), 0..4096));
    // Known answers: a replay in another version must place the same.
    assert_eq!(colours(&mut Random::new(1000, 42), 0..4), KNOWN_RANDOM);
    // Chi-square with 15 degrees of freedom: 37.7 is exceeded once in a thousand seeds; this seed is fixed.
    let chi: f64 = (0..16)
        .map(|colour| {
            let count = forwards.iter().filter(|c| **c == colour).count() as f64;
            (count - 256.0).powi(2) / 256.0
        })
        .sum();
    assert!(chi < 37.7, "{chi}");
}

const KNOWN_RANDOM: [u32; 4] = [343, 950, 446, 977];

proptest! {
    /// The answers by address repeat after the period, and `take_back` restores bin hopping's state.
    #[test]
    fn periods_and_taking_back(count in 1u32..300, vpn in 0u64..1 << 36, back in 0usize..1000, pid: u32) {
        let mut hashed = PageColoring::hashed(count, pid);
        prop_assert_eq!(hashed.want(vpn), hashed.want(vpn + hashed.period()));
        let mut hopping = BinHopping::seeded(count, vpn);
        let expected = colours(&mut hopping.clone(), 0..5);
        for page in 0..back as u64 {
            hopping.want(page);
        }
        hopping.take_back(back);
        prop_assert_eq!(colours(&mut hopping, 0..5), expected);
    }

    /// Binary search and hint against a plain scan.
    #[test]
    fn spans_are_the_naive_map(gaps in proptest::collection::vec((1u64..5, 1u64..5), 0..12), pages in proptest::collection::vec(0u64..80, 0..60)) {
        let (mut at, mut words, mut naive) = (0, Vec::new(), std::collections::BTreeMap::new());
        for (gap, pages) in gaps {
            at += gap;
            words.extend([at << 12, pages, naive.len() as u64]);
            for page in at..at + pages {
                naive.insert(page, naive.len() as u64 + 1000);
            }
            at += pages;
        }
        let (words, values) = (bytes(&words), bytes(&naive.values().copied().collect::<Vec<_>>()));
        let mut spans = Spans::new(Words::new(&words), Words::new(&values));
        for page in pages {
            prop_assert_eq!(spans.value(page), naive.get(&page).copied());
        }
    }
}

fn planned(spec: StrategySpec, pid: u32) -> (Vec<Want>, Colours) {
    let mut section = SectionSpec::uniform(Memory::Anon, 0, Via::Thp);
    section.frames = 1;
    let plan = PlanSpec { sections: [section].into(), strategies: [spec].into(), ..PlanSpec::default() };
    let file = plan.encode(&RunSpec { run_dir: b"/run".into(), ..RunSpec::default() }).unwrap();
    let plan = Plan::parse(&file).unwrap();
    let strategy = plan.strategy(0).unwrap();
    let mut any = AnyStrategy::of_plan(&plan, &strategy, pid).unwrap();
    ((256..260).map(|vpn| any.want(vpn)).collect(), Colours::of_plan(&plan, &strategy).unwrap())
}

#[test]
fn plans_become_strategies() {
    use Want::{Any, Colour, Frame};
    let spec = |kind, colours| StrategySpec::new(kind, colours);
    let plain = spec(StrategyKind::PageColoring, 16);
    assert_eq!(planned(plain.clone(), 1).0, [Colour(0), Colour(1), Colour(2), Colour(3)]);
    let hashed = StrategySpec { pid_hash: true, ..plain.clone() };
    assert!((2..20).any(|pid| planned(hashed.clone(), pid).0 != planned(hashed.clone(), 1).0));
    let masked = StrategySpec { masks: [0x11, 0x22, 0x44, 0x88].into(), ..plain };
    assert_eq!(planned(masked, 1).1, Colours::masked([0x11, 0x22, 0x44, 0x88]).unwrap());
    let hopping = StrategySpec { first: 3, ..spec(StrategyKind::BinHopping, 4) };
    assert_eq!(
        planned(hopping.clone(), 1),
        ([Colour(3), Colour(0), Colour(1), Colour(2)].into(), Colours::low_bits(4).unwrap())
    );
    let drawn = |seed| planned(StrategySpec { first: FIRST_FROM_SEED, seed, ..hopping.clone() }, 1).0;
    assert!((0..50).any(|seed| drawn(seed) != drawn(0)));
    let modulo = StrategySpec { values: [2, ANYWHERE].into(), ..spec(StrategyKind::Modulo, 4) };
    assert_eq!(planned(modulo.clone(), 1).0, [Colour(2), Any, Colour(2), Any]);
    let spans: Vec<Span> = [Span { start: 0x10_1000, pages: 1, first_value: 0 }].into();
    assert_eq!(planned(StrategySpec { spans: spans.clone(), ..modulo }, 1).0, [Any, Colour(2), Any, Any]);
    let exact = StrategySpec { values: [77].into(), spans, ..spec(StrategyKind::Exact, 4) };
    assert_eq!(planned(exact, 1).0, [Any, Frame(77), Any, Any]);
    let random = StrategySpec { seed: 9, ..spec(StrategyKind::Random, 64) };
    let expected = colours(&mut Random::new(64, 9), 256..260);
    assert_eq!(planned(random, 1).0, expected.into_iter().map(Colour).collect::<Vec<_>>());
}

/// A module in Rust: hops backwards from the colour that its argument's first letter names.
#[repr(C)]
struct Backwards {
    colours: u64,
    next: u64,
}

#[allow(unsafe_code, reason = "the module's half of the C interface")]
mod backwards {
    use super::*;

    pub unsafe extern "C" fn init(state: *mut c_void, setup: *const ModuleSetup) -> c_int {
        // SAFETY: `Module::start`'s caller passes room for the state and a complete set-up.
        let (state, setup) = unsafe { (&mut *state.cast::<Backwards>(), &*setup) };
        // SAFETY: the argument is NUL-terminated.
        let letter = unsafe { *setup.argument } as u8;
        if !letter.is_ascii_lowercase() {
            return 22;
        }
        *state = Backwards { colours: u64::from(setup.colours), next: u64::from(letter - b'a') };
        0
    }

    pub unsafe extern "C" fn want(state: *mut c_void, vpn: u64) -> u64 {
        // SAFETY: the state is the room that `Module::start`'s caller passed, and `init` has filled it.
        let state = unsafe { &mut *state.cast::<Backwards>() };
        match vpn {
            0 => return u64::MAX,
            1 => return 1 << 63 | 0x1234,
            2 => return state.colours + 1,
            _ => {}
        }
        let colour = state.next;
        state.next = (state.next + state.colours - 1) % state.colours;
        colour
    }

    pub unsafe extern "C" fn take_back(state: *mut c_void, count: u64) {
        // SAFETY: the state is the room that `Module::start`'s caller passed, and `init` has filled it.
        let state = unsafe { &mut *state.cast::<Backwards>() };
        state.next = (state.next + count) % state.colours;
    }
}

fn start(table: &ModuleTable, state: &mut Backwards, argument: &core::ffi::CStr) -> Result<Module, ModuleError> {
    let setup = ModuleSetup {
        version: 1,
        colours: 8,
        pid: 1,
        reserved: 0,
        seed: 0,
        argument: argument.as_ptr().cast::<c_char>(),
    };
    let state: *mut Backwards = state;
    #[allow(unsafe_code, reason = "as above")]
    // SAFETY: the table is this file's, and the state lives longer than its use in the tests.
    unsafe {
        Module::start(table, state.cast(), size_of::<Backwards>(), &setup)
    }
}

#[test]
fn modules_are_called_through_their_table() {
    let table = ModuleTable {
        version: MODULE_VERSION,
        flags: 0,
        state_bytes: 16,
        period: 5,
        name: c"backwards".as_ptr(),
        init: Some(backwards::init),
        want: Some(backwards::want),
        take_back: Some(backwards::take_back),
    };
    let mut state = Backwards { colours: 0, next: 0 };
    let mut module = AnyStrategy::Module(start(&table, &mut state, c"b").unwrap());
    assert_eq!(colours(&mut module, 10..13), [1, 0, 7]);
    module.take_back(2);
    assert_eq!(colours(&mut module, 10..11), [0]);
    assert_eq!([0, 1, 2].map(|vpn| module.want(vpn)), [Want::Any, Want::Frame(0x1234), Want::Colour(1)]);
    assert_eq!((module.is_by_address(), module.period()), (false, 1));

    let refused =
        |table: &ModuleTable, argument| start(table, &mut Backwards { colours: 0, next: 0 }, argument).err();
    assert_eq!(refused(&table, c"?"), Some(ModuleError::Init(22)));
    assert_eq!(refused(&ModuleTable { version: 2, ..table }, c"b"), Some(ModuleError::Version(2)));
    assert_eq!(refused(&ModuleTable { want: None, ..table }, c"b"), Some(ModuleError::NoWant));
    assert_eq!(refused(&ModuleTable { state_bytes: 17, ..table }, c"b"), Some(ModuleError::State(17)));
    let by_address = ModuleTable { flags: 1, take_back: None, ..table };
    let mut module = start(&by_address, &mut state, c"b").unwrap();
    module.take_back(1);
    assert_eq!((module.is_by_address(), module.period()), (true, 5));
}
