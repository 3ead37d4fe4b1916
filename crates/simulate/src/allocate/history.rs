//! The history of the simulated machine before the program starts.

use serde::{Deserialize, Serialize};

/// The machine's history before the program starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct History {
    /// Bytes of memory of the machine.
    pub memory_bytes: u64,
    /// Processors, each with its own list of pages; the program runs on the first.
    pub processors: usize,
    /// Largest share of memory that other programs hold when the program starts.
    pub used: f64,
    /// Largest share of memory that holds pages of files.
    pub cached: f64,
    /// How many times the machine's memory was handed out and given back before. 0: the machine has just started.
    pub turnover: f64,
    /// Approximate number of programs that lived at the same time.
    pub programs: usize,
    /// Largest share of memory held by programs that came and went; never less than the part of `used` that is not
    /// `kept`.
    pub peak: f64,
    /// The share of `used` that one program has from the beginning and keeps.
    pub kept: f64,
    /// The share of memory in single pages, anywhere, that are never given back or moved: old objects of the kernel.
    pub scattered: f64,
    /// Standard deviation of the binary logarithm of programs' sizes; their mean size is the most that they hold /
    /// `programs`.
    pub programs_differ: f64,
    /// Programs of each processor that grow in turns.
    pub growing: usize,
    /// Share of the pages handed out, without the `kept` ones, that is read from files.
    pub from_files: f64,
    /// The median size of a file.
    pub file_bytes: u64,
    /// Standard deviation of the binary logarithm of files' sizes.
    pub files_differ: f64,
    /// Files deleted for each file that is read.
    pub deleted: f64,
    /// The share of the file pages that is dropped at the end (`drop_caches`, or reclaim of pages that nobody reads).
    pub dropped: f64,
    /// The largest window of readahead.
    pub readahead_bytes: u64,
}

impl Default for History {
    fn default() -> History {
        History {
            memory_bytes: 1 << 30,
            processors: 2,
            used: 0.4,
            cached: 0.5,
            turnover: 2.0,
            programs: 64,
            peak: 0.0,
            kept: 0.0,
            scattered: 0.0,
            programs_differ: 2.0,
            growing: 8,
            from_files: 0.5,
            file_bytes: 64 << 10,
            files_differ: 2.9,
            deleted: 0.2,
            dropped: 0.0,
            readahead_bytes: 128 << 10,
        }
    }
}

impl History {
    /// Refuses impossible shares and sizes.
    ///
    /// # Errors
    /// The value, and the allowed ones.
    pub fn check(&self) -> Result<(), String> {
        let pages = self.memory_bytes >> super::PAGE_BITS;
        if !(1024..=1 << 30).contains(&pages) {
            return Err(format!("memory_bytes = {}; allowed: 4 MiB to 4 TiB", self.memory_bytes));
        }
        if !(0.0..=0.95).contains(&self.used)
            || !(0.0..=1.0).contains(&self.cached)
            || self.used + self.cached > 1.0
        {
            return Err(format!(
                "used = {}, cached = {}: shares of memory, at most 0.95 and 1 together",
                self.used, self.cached
            ));
        }
        let shares = [
            ("peak", self.peak, 0.95),
            ("kept", self.kept, 1.0),
            ("scattered", self.scattered, 0.05),
            ("from_files", self.from_files, 1.0),
            ("deleted", self.deleted, 1.0),
            ("dropped", self.dropped, 1.0),
            ("programs_differ", self.programs_differ, 6.0),
            ("files_differ", self.files_differ, 6.0),
        ];
        if let Some((name, value, most)) = shares.iter().find(|(_, value, most)| !(0.0..=*most).contains(value)) {
            return Err(format!("{name} = {value}; allowed: 0 to {most}"));
        }
        if !(1..=1024).contains(&self.growing) || !(1..=1 << 40).contains(&self.file_bytes) {
            return Err("growing: 1 to 1024; file_bytes: 1 to 1 TiB".to_owned());
        }
        if !(0.0..=1000.0).contains(&self.turnover) {
            return Err(format!("turnover = {}; allowed: 0 to 1000", self.turnover));
        }
        if !(1..=1024).contains(&self.processors) || !(1..=1 << 20).contains(&self.programs) {
            return Err("processors: 1 to 1024; programs: 1 to 1048576".to_owned());
        }
        if !(4 << 10..=64 << 20).contains(&self.readahead_bytes) {
            return Err(format!("readahead_bytes = {}; allowed: 4 KiB to 64 MiB", self.readahead_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_that_cannot_be_are_refused() {
        assert_eq!(History::default().check(), Ok(()));
        let bad = |change: fn(&mut History)| {
            let mut history = History::default();
            change(&mut history);
            history.check().unwrap_err()
        };
        assert!(bad(|history| history.used = 0.6).contains("together"));
        assert!(bad(|history| history.memory_bytes = 4096).contains("4 MiB"));
        assert!(bad(|history| history.turnover = f64::NAN).contains("turnover"));
        assert!(bad(|history| history.processors = 0).contains("processors"));
        assert!(bad(|history| history.peak = 1.0).contains("peak"));
        assert!(bad(|history| history.from_files = -0.1).contains("from_files = -0.1; allowed: 0 to 1"));
        assert!(bad(|history| history.growing = 0).contains("growing"));
        assert!(bad(|history| history.readahead_bytes = 0).contains("readahead"));
    }
}
