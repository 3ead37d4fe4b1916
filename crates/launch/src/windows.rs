//! What the program measured of itself in windows (`pagelab_begin`, `pagelab_end`): read from its windows files, and
//! made measurements of the run.

use crate::counters::InWindows;
use crate::measurements::{Collected, Passed};
use crate::warnings::{Kind, Warnings};
use crate::words;
use pagelab_policy::windows::{HEAD_BYTES, Measured, Told, Windows};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Most windows kept of one run.
const MOST: usize = 250_000;
/// Most names of them: a file has 128, and a run any number of processes.
const MOST_NAMES: usize = 250_000;
/// How many names a warning shows.
const SHOWN: usize = 5;

/// The windows of all process images of a run, in the order in which the images were taken in.
#[derive(Debug, Default)]
pub struct Collection {
    files: Vec<Windows>,
    kept: usize,
    names: usize,
    told: Told,
    left_out: u64,
}

/// Kinds of wrong windows, and of calls without a window.
struct Irregular {
    /// Its key in the warning's data.
    key: &'static str,
    count: u64,
    /// The fault, for the message.
    what: &'static str,
}

/// Reads a windows file; `None` where it is not a finished one. `space` is made as long as needed and used again.
pub fn read(file: &File, space: &mut Vec<u8>) -> io::Result<Option<Windows>> {
    space.clear();
    space.resize(HEAD_BYTES, 0);
    file.read_exact_at(space, 0)?;
    let Some(bytes) = Windows::ended_bytes(space) else { return Ok(None) };
    space.resize(HEAD_BYTES + bytes, 0);
    let (head, ended) = space.split_at_mut(HEAD_BYTES);
    file.read_exact_at(ended, HEAD_BYTES as u64)?;
    Ok(Some(Windows::decode(head, ended)))
}

impl Collection {
    /// Keeps the windows of one image, as many as there is room for.
    pub fn keep(&mut self, mut windows: Windows) {
        let (sum, one) = (&mut self.told, windows.told);
        for (sum, one) in [
            (&mut sum.not_begun, one.not_begun),
            (&mut sum.begun_twice, one.begun_twice),
            (&mut sum.too_deep, one.too_deep),
            (&mut sum.names_left_out, one.names_left_out),
            (&mut sum.threads_left_out, one.threads_left_out),
            (&mut sum.windows_left_out, one.windows_left_out),
        ] {
            *sum = sum.saturating_add(one);
        }
        let (number, names) = (windows.ended.len() + windows.open.len(), windows.names.len().max(1));
        if number == 0 {
            return;
        }
        if self.names + names > MOST_NAMES {
            self.left_out += number as u64;
            return;
        }
        self.names += names;
        let room = MOST - self.kept;
        self.left_out += windows.ended.len().saturating_sub(room) as u64;
        windows.ended.truncate(room);
        self.kept += windows.ended.len();
        self.files.push(windows);
    }

    /// Makes measurements of them, with the counters that are read in them.
    pub fn measure(&self, counters: &[InWindows], collected: &mut Collected) {
        for (file, window) in self.windows() {
            if let Some(name) = file.names.get(window.name) {
                let placed = Passed {
                    resident_bytes: window.placed.map(|placed| placed.resident),
                    huge_bytes: window.placed.map(|placed| placed.huge),
                    ..Passed::from(&window.used)
                };
                collected.push_window(name, &placed);
                for counter in counters {
                    if let Some(count) = counter.count(&window.counts) {
                        collected.push_part(name, &counter.name, count as f64, counter.unit());
                    }
                }
            }
        }
    }

    /// Warns of calls without a window, and of doubtful windows. `not_handed`: counters that had no room among those read
    /// in windows, and those that the program must not read.
    pub fn warn(&self, not_handed: [usize; 2], warnings: &mut Warnings) {
        let open: Vec<&String> = self.never_ended().collect();
        let wrong: Vec<_> =
            self.irregular(open.len(), not_handed).into_iter().filter(|one| one.count > 0).collect();
        if wrong.is_empty() {
            return;
        }
        let names: BTreeSet<_> = open.iter().map(|name| words::plain(name)).collect();
        let names: Vec<_> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
        let text = |one: &Irregular| match one.key {
            "never_ended" => format!("{} {} ({})", one.count, one.what, names.join(", ")),
            _ => format!("{} {}", one.count, one.what),
        };
        let is_misuse = |one: &Irregular| matches!(one.key, "never_ended" | "not_begun" | "begun_twice");
        let message = format!(
            "windows that are not as they were meant: {}{}",
            wrong.iter().map(text).collect::<Vec<_>>().join("; "),
            if wrong.iter().any(is_misuse) {
                "; a thread ends what it began with pagelab_begin by pagelab_end"
            } else {
                ""
            }
        );
        let data: Map<String, Value> = wrong.iter().map(|one| (one.key.to_owned(), one.count.into())).collect();
        warnings.warn(Kind::WindowMisused, message, Value::Object(data));
    }

    /// The windows with the file that they are of.
    fn windows(&self) -> impl Iterator<Item = (&Windows, &Measured)> {
        self.files.iter().flat_map(|file| file.ended.iter().map(move |window| (file, window)))
    }

    /// Names of the windows that were open when their image ended.
    fn never_ended(&self) -> impl Iterator<Item = &String> {
        self.files.iter().flat_map(|file| file.open.iter().filter_map(|&name| file.names.get(name)))
    }

    /// All faults of windows, with their numbers.
    fn irregular(&self, never_ended: usize, not_handed: [usize; 2]) -> [Irregular; 10] {
        let total = |of: fn(&Told) -> u64| of(&self.told);
        let one = |key, count, what| Irregular { key, count, what };
        let uncounted =
            self.windows().filter(|(file, window)| window.counts.iter().take(file.events).any(Option::is_none));
        let has_windows = self.windows().next().is_some();
        let [left_out, withheld] = not_handed.map(|counters| if has_windows { counters as u64 } else { 0 });
        let not_kept = total(|told| told.windows_left_out).saturating_add(self.left_out);
        [
            one("never_ended", never_ended as u64, "begun and never ended"),
            one(
                "not_begun",
                total(|told| told.not_begun),
                "ended where none was open (ended twice, in another thread, or after a fork)",
            ),
            one(
                "begun_twice",
                total(|told| told.begun_twice),
                "begun while one of the same name was open in the same thread",
            ),
            one("too_deep", total(|told| told.too_deep), "begun inside more than seven others"),
            one(
                "names_left_out",
                total(|told| told.names_left_out),
                "begun with one name too many (a process has 128)",
            ),
            one(
                "threads_left_out",
                total(|told| told.threads_left_out),
                "begun in one thread too many (128 at a time)",
            ),
            one("windows_left_out", not_kept, "not kept: too many, or no space in the run directory"),
            one(
                "not_counted",
                uncounted.count() as u64,
                "without some counters (the program closed their descriptors, or they were not on the processor within it)",
            ),
            one("counters_left_out", left_out, "counters that no window has (16 events can be read in windows)"),
            one(
                "counters_withheld",
                withheld,
                "counters that no window has (they may count what the program's user may not: it is another user's, or \
                 the launcher has capabilities of its own)",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_policy::windows::{EVENTS, Placed, Usage};

    fn image() -> Windows {
        let used = Usage { wall_ns: 2_000_000_000, user_ns: 1_500_000_000, minor_faults: 3, ..Usage::default() };
        Windows {
            names: vec!["load".to_owned(), "bad\u{1b}[2J".to_owned()],
            ended: vec![Measured { name: 0, begin_ns: 1, placed: None, used, counts: [None; EVENTS] }],
            open: vec![1],
            told: Told { not_begun: 2, ..Told::default() },
            events: 0,
        }
    }

    #[test]
    fn a_window_is_seven_measurements() {
        let mut windows = Collection::default();
        windows.keep(image());
        let mut collected = Collected::default();
        windows.measure(&[], &mut collected);
        let found: Vec<_> = collected.measurements.iter().map(|m| (&*m.name, m.value)).collect();
        assert_eq!(found[..3], [("load", 2.0), ("load.cpu", 1.5), ("load.user", 1.5)]);
        assert_eq!(found[5..], [("load.faults", 3.0), ("load.major_faults", 0.0)]);
    }

    #[test]
    fn a_look_is_two_more() {
        let mut looked = image();
        looked.ended[0].placed = Some(Placed { resident: 8192, huge: 4096 });
        let mut windows = Collection::default();
        windows.keep(looked);
        let mut collected = Collected::default();
        windows.measure(&[], &mut collected);
        let found: Vec<_> = collected.measurements.iter().map(|m| (&*m.name, m.value, &*m.unit)).collect();
        assert_eq!(found[7..], [("load.resident", 8192.0, "B"), ("load.huge", 4096.0, "B")]);
    }

    #[test]
    fn counters_are_one_more_each_where_they_were_read() {
        let mut counted = image();
        counted.events = 2;
        counted.ended.push(counted.ended[0]);
        (counted.ended[0].counts[0], counted.ended[0].counts[1]) = (Some(5), Some(7));
        counted.ended[1].counts[0] = Some(5);
        let mut windows = Collection::default();
        windows.keep(counted);
        let counters = [("cycles", 0), ("task-clock", 1)]
            .map(|(name, place)| InWindows { name: name.to_owned(), parts: vec![(place, 1)] });
        let mut collected = Collected::default();
        windows.measure(&counters, &mut collected);
        let found: Vec<_> = collected.measurements.iter().map(|m| (&*m.name, m.value, &*m.unit)).collect();
        assert_eq!(found[7..9], [("load.cycles", 5.0, ""), ("load.task-clock", 7.0, "ns")]);
        assert_eq!(found[16..], [("load.cycles", 5.0, "")]);
        let mut warnings = Warnings::default();
        windows.warn([3, 2], &mut warnings);
        let told = |key| warnings.0[0].data.get(key).and_then(Value::as_u64);
        assert_eq!((told("not_counted"), told("counters_left_out")), (Some(1), Some(3)));
        assert_eq!(told("counters_withheld"), Some(2));
    }

    #[test]
    fn what_went_wrong_is_told_without_control_characters() {
        let mut windows = Collection::default();
        windows.keep(image());
        let mut warnings = Warnings::default();
        windows.warn([0, 0], &mut warnings);
        let warning = &warnings.0[0];
        assert!(warning.message.contains("1 begun and never ended") && warning.message.contains("2 ended"));
        assert!(!warning.message.contains('\u{1b}'));
        assert_eq!(warning.data.get("not_begun"), Some(&2.into()));
    }

    #[test]
    fn more_windows_than_are_kept_are_counted() {
        let mut windows = Collection::default();
        for _ in 0..2 {
            let mut image = image();
            image.ended = vec![image.ended[0]; MOST - 1];
            windows.keep(image);
        }
        assert_eq!((windows.kept, windows.left_out), (MOST, MOST as u64 - 2));
    }

    /// Regression: the names of windows files were kept without any limit, also of processes without a window.
    #[test]
    fn more_names_than_are_kept_are_counted_and_take_no_memory() {
        let mut windows = Collection::default();
        for _ in 0..1000 {
            windows.keep(Windows { ended: Vec::new(), open: Vec::new(), ..image() });
        }
        assert_eq!((windows.files.len(), windows.told.not_begun), (0, 2000), "without a window there is no name");
        for _ in 0..MOST_NAMES {
            windows.keep(image());
        }
        assert_eq!(windows.names, MOST_NAMES);
        assert_eq!(windows.left_out, MOST_NAMES as u64, "a half of them, with two windows each");
    }
}
