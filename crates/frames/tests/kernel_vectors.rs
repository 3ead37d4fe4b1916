//! Test vectors of the kernel's strategies and colours: `kernel/guest/vectors.h` has the answers of this crate.
//!
//! `PAGELAB_WRITE_VECTORS=1 cargo test -p pagelab-frames --test kernel_vectors` writes the file anew.

use std::fmt::Write as _;
use std::path::Path;

use pagelab_abi::plan::ANYWHERE;
use pagelab_frames::strategy::{BinHopping, Modulo, PageColoring, Random};
use pagelab_frames::{Colours, Strategy, Want, Words};

/// First virtual page of the guest's test memory.
const FIRST_PAGE: u64 = 0x1000_0000;
const PAGES: u64 = 96;
const PIDS: u32 = 1024;
const MASKS: &[u64] = &[0b1_0000_0001, 0b10_0001_0010, 0b100, 0b1_0000_1000];
const PATTERN: &[u64] = &[3, 1, 4, 1, 5, 9, 2, 6, ANYWHERE, 31, 0];

struct Case {
    strategy: &'static str,
    colours: u32,
    masks: &'static [u64],
    first: Option<u32>,
    seed: u64,
    values: &'static [u64],
}

impl Case {
    const fn of(strategy: &'static str, colours: u32) -> Case {
        Case { strategy, colours, masks: &[], first: None, seed: 0, values: &[] }
    }

    fn colour_function(&self) -> Colours {
        if self.masks.is_empty() {
            return Colours::low_bits(self.colours).unwrap();
        }
        Colours::masked(self.masks.iter().copied()).unwrap()
    }

    fn wants(&self) -> Vec<Want> {
        let count = self.colour_function().count();
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut strategy: Box<dyn Strategy + '_> = match (self.strategy, self.first) {
            ("page-coloring", _) => Box::new(PageColoring::new(count)),
            ("bin-hopping", Some(first)) => Box::new(BinHopping::starting_at(count, first)),
            ("bin-hopping", None) => Box::new(BinHopping::seeded(count, self.seed)),
            ("modulo", _) => Box::new(Modulo::repeating(count, Words::new(&bytes))),
            ("random", _) => Box::new(Random::new(count, self.seed)),
            (other, _) => panic!("no case for {other}"),
        };
        (FIRST_PAGE..FIRST_PAGE + PAGES).map(|vpn| strategy.want(vpn)).collect()
    }

    fn write(&self, text: &mut String) {
        let numbers = |values: &[u64]| values.iter().map(|value| format!("{value:#x}, ")).collect::<String>();
        let wants = self.wants().into_iter().map(|want| match want {
            Want::Colour(colour) => i64::from(colour),
            Want::Any => -1,
            Want::Frame(frame) => panic!("{frame}"),
        });
        let first = self.first.map_or(-1, i64::from);
        writeln!(text, "    {{\"{}\", {}, {first}, {:#x},", self.strategy, self.colours, self.seed).unwrap();
        writeln!(text, "     {}, {{{}}},", self.masks.len(), numbers(self.masks)).unwrap();
        writeln!(text, "     {}, {{{}}},", self.values.len(), numbers(self.values)).unwrap();
        writeln!(text, "     {}}},", table(wants)).unwrap();
    }
}

fn table(values: impl Iterator<Item = i64>) -> String {
    let values: Vec<String> = values.map(|value| value.to_string()).collect();
    let lines: Vec<String> = values.chunks(24).map(|line| line.join(", ")).collect();
    format!("{{{}}}", lines.join(",\n      "))
}

fn cases() -> Vec<Case> {
    vec![
        Case::of("page-coloring", 16),
        Case::of("page-coloring", 12),
        Case::of("page-coloring", 64),
        Case { masks: MASKS, ..Case::of("page-coloring", 0) },
        Case { first: Some(5), ..Case::of("bin-hopping", 16) },
        Case { seed: 7, ..Case::of("bin-hopping", 12) },
        Case { seed: 0x0123_4567_89ab_cdef, ..Case::of("bin-hopping", 64) },
        Case { values: PATTERN, ..Case::of("modulo", 16) },
        Case { values: PATTERN, ..Case::of("modulo", 5) },
        Case { seed: 7, ..Case::of("random", 16) },
        Case { seed: u64::MAX, ..Case::of("random", 12) },
        Case { masks: MASKS, seed: 1, ..Case::of("random", 0) },
    ]
}

fn header() -> String {
    let frames: Vec<u64> = (0..64).map(|at| at * at * 0x1235 + at).collect();
    let colours = |of: Colours| table(frames.iter().map(|frame| i64::from(of.of(*frame))));
    let mut text =
        String::from("/* Made by crates/frames/tests/kernel_vectors.rs, of its strategies. Not to be edited. */\n");
    writeln!(text, "#define FIRST_PAGE {FIRST_PAGE:#x}UL\n#define PAGES {PAGES}\n#define PIDS {PIDS}\n").unwrap();
    text.push_str(
        "static const struct vector {\n    const char *strategy;\n    unsigned colors;\n    int first;\n",
    );
    text.push_str("    unsigned long seed;\n    unsigned mask_count;\n    unsigned long masks[16];\n");
    text.push_str(
        "    unsigned value_count;\n    unsigned long values[16];\n    int want[PAGES];\n} vectors[] = {\n",
    );
    for case in cases() {
        case.write(&mut text);
    }
    text.push_str("};\n\n/* Color of the first page with 16 colors, turned by the process id. */\n");
    let turned = (0..PIDS).map(|pid| match PageColoring::hashed(16, pid).want(FIRST_PAGE) {
        Want::Colour(colour) => i64::from(colour),
        other => panic!("{other:?}"),
    });
    writeln!(text, "static const int turned[PIDS] = {};\n", table(turned)).unwrap();
    let numbers = table(frames.iter().map(|frame| i64::try_from(*frame).unwrap()));
    writeln!(text, "/* Colors of frames: modulo 16, modulo 12, and by the masks above. */").unwrap();
    writeln!(text, "static const unsigned long frames[64] = {numbers};").unwrap();
    writeln!(text, "static const int colors_16[64] = {};", colours(Colours::low_bits(16).unwrap())).unwrap();
    writeln!(text, "static const int colors_12[64] = {};", colours(Colours::low_bits(12).unwrap())).unwrap();
    writeln!(
        text,
        "static const int colors_masked[64] = {};",
        colours(Case { masks: MASKS, ..Case::of("", 0) }.colour_function())
    )
    .unwrap();
    text
}

#[test]
fn the_guest_s_vectors_are_this_crate_s_answers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/guest/vectors.h");
    let now = header();
    if std::env::var_os("PAGELAB_WRITE_VECTORS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "kernel/guest/vectors.h is old; run: PAGELAB_WRITE_VECTORS=1 cargo test -p pagelab-frames --test kernel_vectors"
    );
}
