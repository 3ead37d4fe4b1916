//! The strategies that place frames: one table, which the plan, the policy language, the simulator, the program's own
//! hints, records, help texts and checks of the documentation read.
//!
//! The steps to a new one are in CONTRIBUTING.md, *A placement strategy*.

/// A parameter of a strategy, besides those that every strategy takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Colours are turned by a hash of the process id.
    Hash,
    /// The colour to begin with.
    First,
    /// Seed of the random draws. With [`Parameter::First`]: it draws the colour to begin with.
    Seed,
    /// Colours, repeated over the virtual pages.
    Pattern,
    /// Frame numbers.
    Frames,
    /// A saved map.
    Map,
    /// A colour or frame for each page of ranges of addresses.
    Spans,
    /// A shared object.
    Path,
    /// The argument of the shared object.
    Argument,
}

impl Parameter {
    /// Its word in the policy language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Parameter::Hash => "hash",
            Parameter::First => "first",
            Parameter::Seed => "seed",
            Parameter::Pattern => "pattern",
            Parameter::Frames => "frames",
            Parameter::Map => "map",
            Parameter::Spans => "spans",
            Parameter::Path => "path",
            Parameter::Argument => "argument",
        }
    }

    /// Its values, and its default.
    #[must_use]
    pub const fn takes(self) -> &'static str {
        match self {
            Parameter::Hash => "pid: colours are turned by a hash of the process id; without it they are not",
            Parameter::First => "colour of the first page, from 0; 0 without it",
            Parameter::Seed => "whole number from 0; 0 without it",
            Parameter::Pattern => "list of colours, repeated over the virtual pages",
            Parameter::Frames => "list of frame numbers, from the start of one pool or range on",
            Parameter::Map => "file with a saved map",
            Parameter::Spans => "list of start addresses, each with a value for every page",
            Parameter::Path => "file with a shared object",
            Parameter::Argument => "text for the shared object; none without it",
        }
    }
}

/// The description of a strategy.
#[derive(Debug)]
pub struct Facts {
    /// Its word in policies and records.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Its effect, as part of a sentence.
    pub summary: &'static str,
    /// Its example in help texts.
    pub example: &'static str,
    /// Whether it wants particular colours or frames: then the pool may have to hold many pages that it rejects.
    pub is_particular: bool,
    /// Whether answers depend on the order of faults: then pages are placed ahead only while memory is touched in
    /// order, and `Strategy::is_by_address` is false.
    pub is_in_sequence: bool,
}

macro_rules! strategies {
    // Codes are 0, 1, 2 … in order, and new ones come last: plans, guest files and `pagelab.h` contain them.
    ($($(#[$doc:meta])* $kind:ident = $code:literal: $facts:expr;)*) => {
        /// How the frames of pages are chosen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum StrategyKind {
            $($(#[$doc])* $kind = $code,)*
        }

        impl StrategyKind {
            /// All kinds, in the order of their codes.
            pub const ALL: &'static [StrategyKind] = &[$(StrategyKind::$kind,)*];

            /// Its row of the table.
            #[must_use]
            pub const fn facts(self) -> &'static Facts {
                match self {
                    $(StrategyKind::$kind => &$facts,)*
                }
            }
        }
    };
}

strategies! {
    /// The colour of the virtual page.
    PageColoring = 0: Facts {
        name: "page-coloring",
        parameters: &[Parameter::Hash],
        summary: "a page’s cache colour follows its address",
        example: "page-coloring",
        is_particular: false,
        is_in_sequence: false,
    };
    /// One colour after another, in the order in which pages are placed.
    BinHopping = 1: Facts {
        name: "bin-hopping",
        parameters: &[Parameter::First, Parameter::Seed],
        summary: "cache colours are dealt in the order of page faults",
        example: "bin-hopping",
        is_particular: false,
        is_in_sequence: true,
    };
    /// A colour for each page: a pattern that repeats over the virtual pages, or spans of addresses.
    Modulo = 2: Facts {
        name: "modulo",
        parameters: &[Parameter::Pattern, Parameter::Map, Parameter::Spans],
        summary: "each page has a cache colour that the policy names",
        example: "modulo:…",
        is_particular: true,
        is_in_sequence: false,
    };
    /// A frame for each page of the spans.
    Exact = 3: Facts {
        name: "exact",
        parameters: &[Parameter::Frames, Parameter::Map, Parameter::Spans],
        summary: "each page has a frame that the policy names",
        example: "exact:…",
        is_particular: true,
        is_in_sequence: false,
    };
    /// A colour drawn for each page from the seed and its address.
    Random = 4: Facts {
        name: "random",
        parameters: &[Parameter::Seed],
        summary: "cache colours are drawn at random",
        example: "random:seed=N",
        is_particular: false,
        is_in_sequence: false,
    };
    /// The answers of a module (a shared object of the user's).
    Module = 5: Facts {
        name: "module",
        parameters: &[Parameter::Path, Parameter::Argument, Parameter::Seed],
        summary: "a module of the user’s places the pages",
        example: "module:path=F",
        is_particular: true,
        is_in_sequence: false,
    };
}

impl StrategyKind {
    /// The kind with this code.
    #[must_use]
    pub fn from_code(code: u64) -> Option<StrategyKind> {
        StrategyKind::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<StrategyKind> {
        StrategyKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Its name in policies and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether it takes this parameter.
    #[must_use]
    pub fn takes(self, parameter: Parameter) -> bool {
        self.facts().parameters.contains(&parameter)
    }
}
