//! Levels of instruction sets, for the code that packs runs.

use std::sync::OnceLock;

/// Instructions that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Instructions of every processor.
    Plain,
    /// Vectors of eight words, their compression, and fast deposits of bits.
    ///
    /// Deposits are slow on processors of AMD before Zen 3, none of which has such vectors.
    #[cfg(target_arch = "x86_64")]
    Wide,
}

impl Level {
    /// The highest that this processor has.
    pub fn of_this_processor() -> Level {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| *Level::all().last().expect("the plain one"))
    }

    /// All that this processor has.
    pub fn all() -> Vec<Level> {
        let mut all = vec![Level::Plain];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            all.push(Level::Wide);
        }
        all
    }
}
