//! Policy TOML into a [`RawPolicy`]: shape and keys are checked here, values in [`crate::validate`].

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Place, PolicyError};
use crate::mosalloc;
use crate::raw::{At, RawAxes, RawFrames, RawMosaic, RawPages, RawPolicy, RawRule, RawScope, RawTile};

const TOP_KEYS: &[&str] = &["name", "frames", "pages", "fetch", "via", "inherit", "rule"];
const RULE_KEYS: &[&str] = &["memory", "range", "at_least", "frames", "pages", "fetch", "via"];

/// Reads a file that a policy names (a CSV layout); the text, or why it cannot be read.
///
/// The crate opens no files: callers pass what does.
pub type Load<'l> = &'l dyn Fn(&str) -> Result<String, String>;

/// Refuses every file: for policies that stand alone.
///
/// # Errors
/// Always.
pub fn no_files(path: &str) -> Result<String, String> {
    Err(format!("{path}: this policy must not refer to other files"))
}

/// Reads a policy's TOML; `path` is for messages only.
///
/// # Errors
/// The first thing that has not the shape of a policy, with its line.
pub fn read_toml(text: &str, path: &str, load: Load<'_>) -> Result<RawPolicy, PolicyError> {
    let reader = Reader::new(text, path, load);
    let document = DeTable::parse(text).map_err(|error| reader.syntax_error(&error))?;
    let table = document.get_ref();
    if table.is_empty() {
        return Err(PolicyError::new(&reader.whole(), "the policy is empty").allowed(TOP_KEYS));
    }
    reader.policy(table)
}

type Value<'i> = Spanned<DeValue<'i>>;

struct Reader<'l> {
    source: Arc<str>,
    line_starts: Vec<usize>,
    load: Load<'l>,
}

impl<'l> Reader<'l> {
    fn new(text: &str, path: &str, load: Load<'l>) -> Reader<'l> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Reader { source: Arc::from(path), line_starts, load }
    }

    fn whole(&self) -> Place {
        Place { source: Arc::clone(&self.source), line: None }
    }

    fn place_of(&self, offset: usize) -> Place {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        Place::line(&self.source, u32::try_from(line).unwrap_or(u32::MAX))
    }

    fn place<T>(&self, value: &Spanned<T>) -> Place {
        self.place_of(value.span().start)
    }

    fn syntax_error(&self, error: &toml::de::Error) -> PolicyError {
        let place = error.span().map_or_else(|| self.whole(), |span| self.place_of(span.start));
        PolicyError::new(&place, format!("not valid TOML: {}", error.message()))
    }

    fn expected(&self, value: &Value<'_>, key: &str, what: &str) -> PolicyError {
        let found = value.get_ref().type_str();
        PolicyError::new(&self.place(value), format!("`{key}` must be {what}, not {found}"))
    }

    fn check_keys(&self, table: &DeTable<'_>, known: &[&str], of: &str) -> Result<(), PolicyError> {
        match table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            Some(key) => {
                let message = format!("unknown key `{}` in {of}", key.get_ref());
                Err(PolicyError::new(&self.place(key), message).allowed(known))
            }
            None => Ok(()),
        }
    }

    fn policy(&self, table: &DeTable<'_>) -> Result<RawPolicy, PolicyError> {
        self.check_keys(table, TOP_KEYS, "the policy")?;
        let mut policy = RawPolicy::empty(&self.whole());
        policy.name = table.get("name").map(|value| self.string(value, "name")).transpose()?;
        policy.axes = self.axes(table)?;
        if let Some(value) = table.get("inherit") {
            let inherit = value.get_ref().as_table();
            let inherit = inherit.ok_or_else(|| self.expected(value, "inherit", INHERIT_FORM))?;
            self.check_keys(inherit, &["fork", "exec"], "`inherit`")?;
            policy.inherit_fork = self.boolean(inherit, "fork")?;
            policy.inherit_exec = self.boolean(inherit, "exec")?;
        }
        if let Some(value) = table.get("rule") {
            let form = "a list of tables, each written [[rule]]";
            let rules = value.get_ref().as_array().ok_or_else(|| self.expected(value, "rule", form))?;
            policy.rules = rules.iter().map(|rule| self.rule(rule)).collect::<Result<_, _>>()?;
        }
        Ok(policy)
    }

    fn rule(&self, value: &Value<'_>) -> Result<RawRule, PolicyError> {
        let table = value.get_ref().as_table().ok_or_else(|| self.expected(value, "rule", "a table"))?;
        self.check_keys(table, RULE_KEYS, "the rule")?;
        let place = self.place(value);
        let scope = match (table.get("memory"), table.get("range")) {
            (Some(memory), None) => RawScope::Memory(self.strings(memory, "memory")?),
            (None, Some(range)) => self.range(range)?,
            (None, None) => {
                let message = "the rule does not say what it applies to: give `memory` or `range`";
                return Err(PolicyError::new(&place, message).allowed(crate::validate::memory_words()));
            }
            (Some(_), Some(range)) => {
                let message = "a rule takes `memory` or `range`, not both";
                return Err(PolicyError::new(&self.place(range), message));
            }
        };
        let at_least = table.get("at_least").map(|value| self.size(value, "at_least")).transpose()?;
        Ok(RawRule { place, scope, at_least, axes: self.axes(table)? })
    }

    fn range(&self, value: &Value<'_>) -> Result<RawScope, PolicyError> {
        let form = "a pair of addresses, [\"0x…\", \"0x…\"]";
        let Some([start, end]) = value.get_ref().as_array().map(|array| &array[..]) else {
            return Err(self.expected(value, "range", form));
        };
        Ok(RawScope::Range(self.size(start, "range")?, self.size(end, "range")?))
    }

    fn axes(&self, table: &DeTable<'_>) -> Result<RawAxes, PolicyError> {
        Ok(RawAxes {
            frames: table.get("frames").map(|value| self.frames(value)).transpose()?,
            pages: table.get("pages").map(|value| self.pages(value)).transpose()?,
            via: table.get("via").map(|value| self.string(value, "via")).transpose()?,
            fetch: table.get("fetch").map(|value| self.string(value, "fetch")).transpose()?,
        })
    }

    fn frames(&self, value: &Value<'_>) -> Result<At<RawFrames>, PolicyError> {
        let place = self.place(value);
        let Some(table) = value.get_ref().as_table() else {
            let kind = self.string(value, "frames")?;
            return Ok(At::new(RawFrames { kind, parameters: Vec::new() }, &place));
        };
        let kind = table.get("kind").ok_or_else(|| {
            PolicyError::new(&place, "`frames` does not name its `kind`").allowed(crate::validate::FRAMES_WORDS)
        })?;
        let kind = self.string(kind, "kind")?;
        let mut parameters = Vec::new();
        for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != "kind") {
            let name = At::new(key.get_ref().to_string(), &self.place(key));
            parameters.push((name, self.scalars(value, key.get_ref())?));
        }
        Ok(At::new(RawFrames { kind, parameters }, &place))
    }

    fn pages(&self, value: &Value<'_>) -> Result<At<RawPages>, PolicyError> {
        let place = self.place(value);
        let Some(table) = value.get_ref().as_table() else {
            let word = self.size(value, "pages")?;
            return Ok(At::new(RawPages::Word(word.value), &place));
        };
        if let Some(path) = table.get("csv") {
            self.check_keys(table, &["csv"], "`pages` with `csv`")?;
            let path = self.string(path, "csv")?;
            let text = (self.load)(&path.value)
                .map_err(|why| PolicyError::new(&path.place, format!("cannot read the layout: {why}")))?;
            return Ok(At::new(RawPages::Layout(mosalloc::read_layout(&text, &path.value)?), &place));
        }
        self.check_keys(table, &["mosaic", "otherwise", "csv"], "`pages`")?;
        let mosaic = table.get("mosaic").ok_or_else(|| {
            PolicyError::new(&place, "`pages` is a table without `mosaic`").allowed(["mosaic", "csv"])
        })?;
        let tiles = mosaic.get_ref().as_array().ok_or_else(|| self.expected(mosaic, "mosaic", TILES_FORM))?;
        let tiles = tiles.iter().map(|tile| self.tile(tile)).collect::<Result<_, _>>()?;
        let otherwise = table.get("otherwise").map(|value| self.size(value, "otherwise")).transpose()?;
        Ok(At::new(RawPages::Mosaic(RawMosaic { tiles, otherwise }), &place))
    }

    fn tile(&self, value: &Value<'_>) -> Result<At<RawTile>, PolicyError> {
        let Some([start, end, size]) = value.get_ref().as_array().map(|array| &array[..]) else {
            return Err(self.expected(value, "mosaic", TILES_FORM));
        };
        let text = |value| self.size(value, "mosaic").map(|at| at.value);
        let tile = RawTile { start: text(start)?, end: text(end)?, size: text(size)? };
        Ok(At::new(tile, &self.place(value)))
    }

    fn string(&self, value: &Value<'_>, key: &str) -> Result<At<String>, PolicyError> {
        let text = value.get_ref().as_str().ok_or_else(|| self.expected(value, key, "a string"))?;
        Ok(At::new(text.to_owned(), &self.place(value)))
    }

    /// A string, or a bare integer (bytes), as text.
    fn size(&self, value: &Value<'_>, key: &str) -> Result<At<String>, PolicyError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => integer_text(number.as_str(), number.radix()),
            _ => return Err(self.expected(value, key, "a size: a string such as \"2M\", or a number of bytes")),
        };
        Ok(At::new(text, &self.place(value)))
    }

    fn scalars(&self, value: &Value<'_>, key: &str) -> Result<Vec<At<String>>, PolicyError> {
        match value.get_ref() {
            DeValue::Boolean(flag) => Ok(vec![At::new(flag.to_string(), &self.place(value))]),
            DeValue::Array(items) => items.iter().map(|item| self.size(item, key)).collect(),
            _ => Ok(vec![self.size(value, key)?]),
        }
    }

    fn strings(&self, value: &Value<'_>, key: &str) -> Result<Vec<At<String>>, PolicyError> {
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| self.string(item, key)).collect(),
            _ => Ok(vec![self.string(value, key)?]),
        }
    }

    fn boolean(&self, table: &DeTable<'_>, key: &str) -> Result<Option<bool>, PolicyError> {
        let read =
            |value: &Value<'_>| value.get_ref().as_bool().ok_or_else(|| self.expected(value, key, "true or false"));
        table.get(key).map(read).transpose()
    }
}

const INHERIT_FORM: &str = "a table, { fork = true, exec = true }";
const TILES_FORM: &str = "a list of [start, end, size], such as [\"0\", \"64M\", \"2M\"]";

/// An integer's digits in a form that [`crate::size::parse`] reads; octal and binary only exist in TOML.
fn integer_text(digits: &str, radix: u32) -> String {
    let plain = digits.strip_prefix('+').unwrap_or(digits);
    match radix {
        16 => format!("0x{plain}"),
        10 => plain.to_owned(),
        _ => u64::from_str_radix(plain, radix).map_or_else(|_| plain.to_owned(), |value| value.to_string()),
    }
}
