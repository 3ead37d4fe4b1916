//! Measurements of repeated operations inside one execution, as the program reports them.
//!
//! There are three ways. The program writes them to the descriptor in `PAGELAB_MEASURE_FD`, one a line: a JSON object
//! `{"name": …, "value": …, "unit": …}`, or `name value unit` (the unit may be missing in both). Or a regular
//! expression finds them in standard output. Or the program measures windows (see [`crate::windows`]); a line can also
//! be a window: `{"window": …, "wall_ns": …}`.

use crate::error::{Error, Result};
use crate::warnings::{Kind, Severity, Warnings};
use crate::words;
use pagelab_contract::record::Measurement;
use pagelab_policy::windows::Usage;
use regex::Regex;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::BufRead;
use std::rc::Rc;

/// Lines longer than this are not measurements; of output, their beginnings are searched.
const LINE_LIMIT: usize = 64 * 1024;
/// How much of a bad line a warning shows.
const SHOWN: usize = 200;
/// How many names a warning shows.
const SHOWN_NAMES: usize = 5;
/// Most measurements kept of one run, most names and units, and characters of one of them.
const MOST: usize = 2_000_000;
const MOST_TEXTS: usize = 100_000;
const MOST_CHARACTERS: usize = 200;
/// Bytes of a program's output that are searched.
pub const MOST_BYTES: u64 = 1 << 30;

/// Measurements read so far, and what could not be read.
#[derive(Debug, Default)]
pub struct Collected {
    /// In the order in which they were written.
    pub measurements: Vec<Measurement>,
    bad_lines: u64,
    /// Lines of output that are too long, and those of them with a measurement in their beginnings.
    cut_lines: u64,
    cut_found: u64,
    first_bad: Option<String>,
    /// They were looked for with a regular expression.
    by_expression: bool,
    texts: HashSet<Rc<str>>,
    /// The window of which each name is a part, if it is one's.
    windows: HashMap<Rc<str>, Option<Rc<str>>>,
    /// Names of which one window's part was kept, and another's was not: they would be two quantities.
    ambiguous: BTreeSet<Rc<str>>,
    /// Measurements that were not kept, because there are too many of them, or of their names.
    left_out: u64,
    /// Input beyond the limit was not read.
    unread: bool,
    /// Why the rest of the input was not read.
    stopped: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    value: f64,
    #[serde(borrow, default)]
    unit: std::borrow::Cow<'a, str>,
}

/// A window that the program timed itself; see [`crate::windows`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowLine<'a> {
    #[serde(borrow)]
    window: std::borrow::Cow<'a, str>,
    wall_ns: u64,
    user_ns: Option<u64>,
    system_ns: Option<u64>,
    thread_ns: Option<u64>,
    minor_faults: Option<u64>,
    major_faults: Option<u64>,
    resident_bytes: Option<u64>,
    huge_bytes: Option<u64>,
}

/// The time, faults and memory of a window, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "field by field as in UsageSlot and PlacedSlot")]
pub struct Passed {
    pub wall_ns: Option<u64>,
    pub user_ns: Option<u64>,
    pub system_ns: Option<u64>,
    pub thread_ns: Option<u64>,
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub huge_bytes: Option<u64>,
}

impl From<&Usage> for Passed {
    fn from(used: &Usage) -> Passed {
        Passed {
            wall_ns: Some(used.wall_ns),
            user_ns: Some(used.user_ns),
            system_ns: Some(used.system_ns),
            thread_ns: Some(used.thread_ns),
            minor_faults: Some(used.minor_faults),
            major_faults: Some(used.major_faults),
            ..Passed::default()
        }
    }
}

impl Passed {
    /// Its measurements: suffix of the name, value and unit.
    pub fn measurements(&self) -> impl Iterator<Item = (&'static str, f64, &'static str)> + use<> {
        let cpu_ns = self.user_ns.zip(self.system_ns).map(|(user, system)| user.saturating_add(system));
        let seconds = |ns: u64| ns as f64 / 1e9;
        let count = |number: u64| number as f64;
        let parts = [
            ("", self.wall_ns.map(seconds), "s"),
            (".cpu", cpu_ns.map(seconds), "s"),
            (".user", self.user_ns.map(seconds), "s"),
            (".system", self.system_ns.map(seconds), "s"),
            (".thread", self.thread_ns.map(seconds), "s"),
            (".faults", self.minor_faults.map(count), ""),
            (".major_faults", self.major_faults.map(count), ""),
            (".resident", self.resident_bytes.map(count), "B"),
            (".huge", self.huge_bytes.map(count), "B"),
        ];
        parts.into_iter().filter_map(|(suffix, value, unit)| Some((suffix, value?, unit)))
    }
}

/// Compiles the regular expression of a request.
pub fn compile(pattern: &str) -> Result<Regex> {
    let regex = Regex::new(pattern).map_err(|error| {
        Error::BadInput(format!("the regular expression for measurements is not valid: {error}"))
    })?;
    let names: Vec<&str> = regex.capture_names().flatten().collect();
    let unknown = names.iter().find(|name| !["name", "value", "unit"].contains(name));
    if let Some(unknown) = unknown {
        return Err(Error::BadInput(format!(
            "the regular expression for measurements names the group {unknown:?}; allowed: name, value, unit"
        )));
    }
    if !names.contains(&"value") {
        return Err(Error::BadInput(format!(
            "the regular expression {pattern:?} has no group named value; write it as: time: (?P<value>[0-9.]+) (?P<unit>\\w+)"
        )));
    }
    Ok(regex)
}

impl Collected {
    /// One text for all measurements that share it: a million of them have a handful of names.
    fn text(&mut self, text: &str) -> Option<Rc<str>> {
        let text = words::plain_up_to(text, MOST_CHARACTERS);
        if let Some(known) = self.texts.get(&*text) {
            return Some(Rc::clone(known));
        }
        if self.texts.len() >= MOST_TEXTS {
            return None;
        }
        let new: Rc<str> = Rc::from(text);
        self.texts.insert(Rc::clone(&new));
        Some(new)
    }

    /// Keeps one, if there is room.
    fn push(&mut self, name: &str, value: f64, unit: &str) {
        self.push_of(None, name, value, unit);
    }

    /// Keeps a part of a window.
    fn push_of(&mut self, window: Option<&str>, name: &str, value: f64, unit: &str) {
        let window = window.and_then(|window| self.text(window));
        match (self.text(name), self.text(unit)) {
            (Some(name), Some(unit)) if self.measurements.len() < MOST => {
                if *self.windows.entry(Rc::clone(&name)).or_insert_with(|| window.clone()) != window {
                    self.ambiguous.insert(name);
                    return;
                }
                self.measurements.push(Measurement { name, value, unit });
            }
            _ => self.left_out += 1,
        }
    }

    /// Keeps a window, part by part.
    pub fn push_window(&mut self, name: &str, passed: &Passed) {
        for (suffix, value, unit) in passed.measurements() {
            self.push_of(Some(name), &format!("{name}{suffix}"), value, unit);
        }
    }

    /// Keeps one more part of a window.
    pub fn push_part(&mut self, name: &str, part: &str, value: f64, unit: &str) {
        self.push_of(Some(name), &format!("{name}.{part}"), value, unit);
    }

    fn bad(&mut self, line: &str) {
        self.bad_lines += 1;
        self.first_bad.get_or_insert_with(|| words::plain_up_to(line, SHOWN).into_owned());
    }

    /// Reads a whole stream of reported lines.
    pub fn read_lines(&mut self, stream: impl BufRead) -> std::io::Result<()> {
        let unread = for_each_line(stream, |line, whole| {
            if let Some((name, value, unit)) = parse(line).filter(|_| whole) {
                self.push(&name, value, &unit);
            } else if let Some((name, passed)) = window(line).filter(|_| whole) {
                self.push_window(&name, &passed);
            } else {
                self.bad(line);
            }
        })?;
        self.unread |= unread;
        Ok(())
    }

    /// Reads a whole output, of which only the lines that match are measurements.
    pub fn read_matches(&mut self, stream: impl BufRead, regex: &Regex) -> std::io::Result<()> {
        self.by_expression = true;
        let unread = for_each_line(stream, |line, whole| self.matches(line, whole, regex))?;
        self.unread |= unread;
        Ok(())
    }

    /// The measurements of one line of output.
    fn matches(&mut self, line: &str, whole: bool, regex: &Regex) {
        if !whole {
            self.cut_lines += 1;
            self.cut_found += u64::from(regex.is_match(line));
        }
        for found in regex.captures_iter(line) {
            let group = |name, missing| found.name(name).map_or(missing, |group| group.as_str());
            match group("value", "").parse::<f64>().ok().filter(|value| value.is_finite()) {
                Some(value) => self.push(group("name", "value"), value, group("unit", "")),
                None => self.bad(line),
            }
        }
    }

    /// Warns that the file of the reported lines had no room in the end.
    pub fn warn_full(&self, warnings: &mut Warnings) {
        let message = "the run directory is full: measurements that the program reported may be missing; \
                       run with another place that has more room: --run-dir DIR";
        let data = json!({"read": self.measurements.len()});
        warnings.add(Kind::MeasurementUnparsed, Severity::Serious, message, data);
    }

    /// Warns of unreadable lines, with the first as an example, and of measurements beyond the limits.
    pub fn warn(&self, warnings: &mut Warnings) {
        if self.left_out > 0 || self.unread || self.stopped.is_some() {
            let rest = match &self.stopped {
                Some(why) => format!("; the rest of the output was not searched: {why}"),
                None if self.unread => "; what came after the first GiB was not read".to_owned(),
                None => String::new(),
            };
            let message = format!(
                "{} of {} measurements were not kept: a run keeps {MOST}, with {MOST_TEXTS} different names{rest}",
                self.left_out,
                self.measurements.len() as u64 + self.left_out
            );
            let unread = self.unread || self.stopped.is_some();
            let data = json!({"left_out": self.left_out, "kept": self.measurements.len(), "unread": unread});
            warnings.add(Kind::MeasurementUnparsed, Severity::Serious, message, data);
        }
        if !self.ambiguous.is_empty() {
            let names: Vec<_> = self.ambiguous.iter().map(|name| words::plain(name)).collect();
            let message = format!(
                "{} would name two quantities, such as a window and a part of another one: only what came first is \
                 kept; give windows names that are no parts of others (docs/api.md)",
                names.iter().take(SHOWN_NAMES).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
            );
            warnings.warn(Kind::WindowMisused, message, json!({"ambiguous": names}));
        }
        if self.cut_lines > 0 {
            let severity = if self.cut_found > 0 { Severity::Warning } else { Severity::Info };
            let message = format!(
                "{} lines of the output are longer than {} KiB: only their beginnings were searched",
                self.cut_lines,
                LINE_LIMIT >> 10
            );
            let data = json!({"lines": self.cut_lines, "with_measurements": self.cut_found});
            warnings.add(Kind::MeasurementUnparsed, severity, message, data);
        }
        if let Some(first) = &self.first_bad {
            let wanted = match self.by_expression {
                true => "group value of the regular expression must match a finite number",
                false => {
                    "a line is a JSON object with name, value and unit (or window and wall_ns), or: name value unit"
                }
            };
            let message = format!(
                "{} reported measurements could not be read; the first: {first:?}; {wanted}",
                self.bad_lines
            );
            let data = json!({"lines": self.bad_lines, "first": first, "read": self.measurements.len()});
            warnings.warn(Kind::MeasurementUnparsed, message, data);
        }
    }
}

/// Finds measurements in output that comes in parts.
#[derive(Debug)]
pub struct Search {
    regex: Regex,
    lines: Lines,
    found: Collected,
}

impl Search {
    /// With this expression.
    pub fn new(regex: Regex) -> Search {
        let found = Collected { by_expression: true, ..Collected::default() };
        Search { regex, lines: Lines::default(), found }
    }

    /// The next part of the output.
    pub fn feed(&mut self, part: &[u8]) {
        let Search { regex, lines, found } = self;
        found.unread |= !lines.feed(part, |line, whole| found.matches(line, whole, regex));
    }

    /// Whether no more is searched.
    pub fn is_full(&self) -> bool {
        self.lines.bytes >= MOST_BYTES
    }

    /// Notes that there is more than is searched.
    pub fn leave_out(&mut self) {
        self.found.unread = true;
    }

    /// Notes that the rest is not searched, and why.
    pub fn stop(&mut self, why: String) {
        self.found.stopped = Some(why);
    }

    /// What was found, after the last part.
    pub fn finish(self) -> Collected {
        let Search { regex, mut lines, mut found } = self;
        lines.end(|line, whole| found.matches(line, whole, &regex));
        found
    }
}

/// Lines of a stream that comes in parts, each cut off where it is too long: a line without an end takes no more memory
/// than any other.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    cut: bool,
    bytes: u64,
}

impl Lines {
    /// Calls `visit` with every line that ends in this part, and whether it is whole. False: it was not read, being
    /// beyond the limit.
    fn feed(&mut self, part: &[u8], mut visit: impl FnMut(&str, bool)) -> bool {
        if self.bytes >= MOST_BYTES && !part.is_empty() {
            return false;
        }
        self.bytes += part.len() as u64;
        for piece in part.split_inclusive(|&byte| byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            // One byte more than is allowed shows that it is too long.
            let room = (LINE_LIMIT + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(text.get(..room.min(text.len())).unwrap_or(text));
            self.cut |= text.len() > room;
            if text.len() < piece.len() {
                self.end(&mut visit);
            }
        }
        true
    }

    /// The line ends here.
    fn end(&mut self, mut visit: impl FnMut(&str, bool)) {
        let text = String::from_utf8_lossy(self.line.trim_ascii());
        if !text.is_empty() {
            visit(&text, !self.cut);
        }
        self.line.clear();
        self.cut = false;
    }
}

/// Calls `visit` with every line, and whether it is whole; returns whether there was more than is read.
fn for_each_line(mut stream: impl BufRead, mut visit: impl FnMut(&str, bool)) -> std::io::Result<bool> {
    let mut lines = Lines::default();
    loop {
        let read = stream.fill_buf()?;
        if read.is_empty() {
            lines.end(visit);
            return Ok(false);
        }
        let used = read.len();
        if !lines.feed(read, &mut visit) {
            return Ok(true);
        }
        stream.consume(used);
    }
}

/// Name, finite value, unit; None for anything else.
fn parse(line: &str) -> Option<(String, f64, String)> {
    if line.len() > LINE_LIMIT {
        return None;
    }
    if line.starts_with('{') {
        let line: Line<'_> = serde_json::from_str(line).ok()?;
        return Some((line.name.into_owned(), line.value, line.unit.into_owned())).filter(usable);
    }
    let mut fields = line.split_ascii_whitespace();
    let (name, value, unit) = (fields.next()?, fields.next()?, fields.next().unwrap_or_default());
    if fields.next().is_some() {
        return None;
    }
    Some((name.to_owned(), value.parse().ok()?, unit.to_owned())).filter(usable)
}

/// A name and what passed in the window; None for anything else.
fn window(line: &str) -> Option<(String, Passed)> {
    let line: WindowLine<'_> = serde_json::from_str(line).ok()?;
    let passed = Passed {
        wall_ns: Some(line.wall_ns),
        user_ns: line.user_ns,
        system_ns: line.system_ns,
        thread_ns: line.thread_ns,
        minor_faults: line.minor_faults,
        major_faults: line.major_faults,
        resident_bytes: line.resident_bytes,
        huge_bytes: line.huge_bytes,
    };
    (!line.window.is_empty()).then(|| (line.window.into_owned(), passed))
}

fn usable((name, value, _): &(String, f64, String)) -> bool {
    value.is_finite() && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Collected {
        let mut collected = Collected::default();
        collected.read_lines(text.as_bytes()).expect("reading memory");
        collected
    }

    fn triples(collected: &Collected) -> Vec<(&str, f64, &str)> {
        collected.measurements.iter().map(|m| (&*m.name, m.value, &*m.unit)).collect()
    }

    #[test]
    fn both_forms_are_read_in_order() {
        let text = "{\"name\": \"read\", \"value\": 1.5, \"unit\": \"ns\"}\nwrite 2 us\n\nplain 3\n{\"value\":4,\"name\":\"n\"}";
        let collected = read(text);
        assert_eq!(
            triples(&collected),
            [("read", 1.5, "ns"), ("write", 2.0, "us"), ("plain", 3.0, ""), ("n", 4.0, "")]
        );
        assert_eq!(collected.bad_lines, 0);
    }

    /// Regression: the time of the window `a.cpu` and the processor time of the window `a` were one metric.
    #[test]
    fn one_name_is_one_quantity() {
        let text = "{\"window\":\"a\",\"wall_ns\":3000000000,\"user_ns\":1000000000,\"system_ns\":0}\n\
                    {\"window\":\"a.user\",\"wall_ns\":5000000000}\na.system 7\n\
                    {\"window\":\"a\",\"wall_ns\":4000000000}\n";
        let collected = read(text);
        let kept: Vec<_> = triples(&collected).into_iter().map(|(name, value, _)| (name, value)).collect();
        assert_eq!(kept, [("a", 3.0), ("a.cpu", 1.0), ("a.user", 1.0), ("a.system", 0.0), ("a", 4.0)]);
        assert_eq!(collected.ambiguous.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.system", "a.user"]);
    }

    #[test]
    fn a_window_that_the_program_timed_has_the_parts_that_it_names() {
        let text = "{\"window\":\"w\",\"wall_ns\":2000000000,\"user_ns\":1,\"minor_faults\":3}\n{\"window\":\"\",\"wall_ns\":1}\n\
                    {\"window\":\"w\"}\n{\"window\":\"w\",\"wall_ns\":1,\"cpu\":2}\n{\"window\":\"w\",\"wall_ns\":-1}\n";
        let collected = read(text);
        assert_eq!(triples(&collected), [("w", 2.0, "s"), ("w.user", 1e-9, "s"), ("w.faults", 3.0, "")]);
        assert_eq!(collected.bad_lines, 4);
    }

    #[test]
    fn what_is_not_a_finite_number_is_refused_and_counted() {
        let collected =
            read("a nan\nb inf s\nc -inf\nd 1e999\n{\"name\":\"e\",\"value\":1e999}\nf\ng 1 2 3\n{\"x\":1}\nok 1");
        assert_eq!(triples(&collected), [("ok", 1.0, "")]);
        assert_eq!(collected.bad_lines, 8);
        let mut warnings = Warnings::default();
        collected.warn(&mut warnings);
        assert!(warnings.0[0].message.contains("8 reported") && warnings.0[0].message.contains("a nan"));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_any_other() {
        let endless = std::io::BufReader::new(std::io::Read::take(std::io::repeat(b'x'), 300 << 20));
        let mut collected = Collected::default();
        collected.read_lines(endless).expect("reading memory");
        assert_eq!((collected.bad_lines, collected.measurements.len()), (1, 0));
        assert!(collected.first_bad.is_some_and(|line| line.len() < 2 * SHOWN));
    }

    #[test]
    fn more_than_is_kept_is_counted_and_said() {
        let text: String = (0..MOST_TEXTS + 10).map(|number| format!("name-{number} 1\n")).collect();
        let collected = read(&text);
        // One of the texts is the empty unit.
        assert_eq!((collected.measurements.len(), collected.left_out), (MOST_TEXTS - 1, 11));
        let mut warnings = Warnings::default();
        collected.warn(&mut warnings);
        assert_eq!(warnings.0[0].severity, Severity::Serious);
    }

    #[test]
    fn names_cannot_move_a_cursor() {
        let collected =
            read("\u{1b}[2Jx 1 \u{9b}s\n{\"name\": \"\\u001b]0;t\\u0007\", \"value\": 2}\nbad \u{1b}[31m\n");
        assert_eq!(triples(&collected), [("\\x1b[2Jx", 1.0, "\\u009bs"), ("\\x1b]0;t\\x07", 2.0, "")]);
        assert_eq!(collected.first_bad.as_deref(), Some("bad \\x1b[31m"));
    }

    #[test]
    fn a_regular_expression_finds_measurements_in_output() {
        let regex = compile(r"(?P<name>\w+) took (?P<value>\S+) (?P<unit>\w+)").expect("valid");
        let mut collected = Collected::default();
        let output = "starting\nsort took 1.25 ms\nnoise\nsort took oops ms\nmerge took 3 ms, scan took 4 ms\n";
        collected.read_matches(output.as_bytes(), &regex).expect("reading memory");
        assert_eq!(triples(&collected), [("sort", 1.25, "ms"), ("merge", 3.0, "ms"), ("scan", 4.0, "ms")]);
        assert_eq!(collected.first_bad.as_deref(), Some("sort took oops ms"));
        let mut warnings = Warnings::default();
        collected.warn(&mut warnings);
        assert!(warnings.0[0].message.contains("group value"), "{}", warnings.0[0].message);
    }

    #[test]
    fn a_long_line_of_output_is_no_measurement_that_could_not_be_read() {
        let told = |start: &str| {
            let mut search = Search::new(compile(r"v=(?P<value>\d+)").expect("valid"));
            search.feed(start.as_bytes());
            search.feed(&vec![b'.'; 2 * LINE_LIMIT]);
            search.feed(b"\n");
            let found = search.finish();
            let mut warnings = Warnings::default();
            found.warn(&mut warnings);
            let all: Vec<_> = warnings.0.iter().map(|one| (one.severity, one.message.clone())).collect();
            (found.measurements.len(), all)
        };
        let message =
            "1 lines of the output are longer than 64 KiB: only their beginnings were searched".to_owned();
        assert_eq!(told("{\"a\": "), (0, vec![(Severity::Info, message.clone())]));
        assert_eq!(told("v=7"), (1, vec![(Severity::Warning, message)]));
    }

    #[test]
    fn expressions_without_a_value_are_refused() {
        for pattern in ["(", "no groups", "(?P<speed>x)(?P<value>y)"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_million_lines_share_their_names() {
        let text = "latency 1.5 ns\n".repeat(1_000_000);
        let collected = read(&text);
        assert_eq!(collected.measurements.len(), 1_000_000);
        assert_eq!(collected.texts.len(), 2);
    }
}
