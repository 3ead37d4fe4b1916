//! Reads policy TOML into a [`RawPolicy`]: shape and keys are checked here, values in [`crate::validate`].

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Place, PolicyError};
use crate::mosalloc;
use crate::raw::{At, RawAxes, RawFrames, RawMosaic, RawPages, RawPolicy, RawRule, RawScope, RawTile};

const TOP_KEYS: &[&str] = &["name", "frames", "pages", "fetch", "via", "backend", "inherit", "rule"];
const RULE_KEYS: &[&str] = &["memory", "range", "at_least", "frames", "pages", "fetch", "via"];

/// The files that a policy names: layouts, saved maps, modules. This crate opens none: callers pass a value that does.
pub trait Files {
    /// The text of a file (a layout, a saved map), or why it cannot be read.
    ///
    /// # Errors
    /// The reason, with the path.
    fn read(&self, path: &str) -> Result<String, String>;

    /// The absolute path of a file that is not read here (a module), so that it is the same wherever the policy is
    /// used.
    fn locate(&self, path: &str) -> String {
        path.to_owned()
    }
}

impl<F: Fn(&str) -> Result<String, String>> Files for F {
    fn read(&self, path: &str) -> Result<String, String> {
        self(path)
    }
}

/// See [`Files`].
pub type Load<'l> = &'l dyn Files;

/// Refuses every file: for policies that name none.
///
/// # Errors
/// It always fails.
pub fn no_files(path: &str) -> Result<String, String> {
    Err(format!("{path}: this policy must not refer to other files"))
}

/// Reads a policy's TOML; `path` is for messages only.
///
/// # Errors
/// The first part that does not have the shape of a policy, with its line.
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
        policy.backend = table.get("backend").map(|value| self.string(value, "backend")).transpose()?;
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
            return Ok(At::new(RawFrames { kind, parameters: Vec::new(), map: None }, &place));
        };
        let raw = match table.get("kind") {
            Some(kind) => {
                let parameters = table.iter().filter(|(key, _)| key.get_ref() != "kind");
                self.parameters(self.string(kind, "kind")?, parameters)?
            }
            None => self.frames_by_name(table, &place)?,
        };
        Ok(At::new(raw, &place))
    }

    /// Reads `{ STRATEGY = { … } }`; for strategies that are defined by a file also `{ STRATEGY = "FILE" }`.
    fn frames_by_name(&self, table: &DeTable<'_>, place: &Place) -> Result<RawFrames, PolicyError> {
        let known = |key: &&str| crate::validate::FRAMES_WORDS.contains(key);
        let mut entries = table.iter();
        let (Some((key, value)), None) = (entries.next(), entries.next()) else {
            return Err(no_kind(place));
        };
        let Some(name) = Some(key.get_ref().as_ref()).filter(known) else {
            return Err(no_kind(place));
        };
        let kind = At::new(name.to_owned(), &self.place(key));
        let file = match name {
            "modulo" | "exact" => Some("map"),
            "module" => Some("path"),
            _ => None,
        };
        match (value.get_ref(), file) {
            (DeValue::Table(parameters), _) => self.parameters(kind, parameters.iter()),
            (DeValue::String(_), Some(parameter)) => {
                let parameter = At::new(parameter.to_owned(), &kind.place);
                let path = self.string(value, name)?;
                frames_with_files(kind, vec![(parameter, vec![path])], self.load)
            }
            (_, Some(_)) => Err(self.expected(value, name, "a table of parameters, or the name of a file")),
            (_, None) => Err(self.expected(value, name, "a table of parameters, such as { colors = 64 }")),
        }
    }

    fn parameters<'v>(
        &self,
        kind: At<String>,
        entries: impl Iterator<Item = (&'v Spanned<std::borrow::Cow<'v, str>>, &'v Value<'v>)>,
    ) -> Result<RawFrames, PolicyError> {
        let mut parameters = Vec::new();
        for (key, value) in entries {
            let name = At::new(key.get_ref().to_string(), &self.place(key));
            let values =
                if name.value == "spans" { self.spans(value)? } else { self.scalars(value, key.get_ref())? };
            parameters.push((name, values));
        }
        frames_with_files(kind, parameters, self.load)
    }

    /// Reads a list of pairs as one list: address, values, address, values …
    fn spans(&self, value: &Value<'_>) -> Result<Vec<At<String>>, PolicyError> {
        let pairs = value.get_ref().as_array().ok_or_else(|| self.expected(value, "spans", SPANS_FORM))?;
        let mut texts = Vec::with_capacity(pairs.len() * 2);
        for pair in pairs {
            let Some([start, values]) = pair.get_ref().as_array().map(|array| &array[..]) else {
                return Err(self.expected(pair, "spans", SPANS_FORM));
            };
            texts.push(self.size(start, "spans")?);
            texts.push(self.string(values, "spans")?);
        }
        Ok(texts)
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
            let text = self
                .load
                .read(&path.value)
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

    /// Reads a string, or a bare integer (bytes), as text.
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

const SPANS_FORM: &str = "a list of [address, values], such as [\"0x600000000000\", \"0-63 .*2 5\"]";

fn no_kind(place: &Place) -> PolicyError {
    PolicyError::new(place, "`frames` does not name its `kind`").allowed(crate::validate::FRAMES_WORDS)
}

/// Reads the saved map and finds the module, if the parameters name one.
pub(crate) fn frames_with_files(
    kind: At<String>,
    mut parameters: Vec<(At<String>, Vec<At<String>>)>,
    files: Load<'_>,
) -> Result<RawFrames, PolicyError> {
    let mut map = None;
    for (name, values) in &mut parameters {
        let [value] = values.as_mut_slice() else { continue };
        match (kind.value.as_str(), name.value.as_str()) {
            ("modulo" | "exact", "map") => {
                let text = files
                    .read(&value.value)
                    .map_err(|why| PolicyError::new(&value.place, format!("cannot read the saved map: {why}")))?;
                map = Some(At::new(crate::framemap::read(&text, &value.value)?, &value.place));
            }
            ("module", "path") => value.value = files.locate(&value.value),
            _ => {}
        }
    }
    Ok(RawFrames { kind, parameters, map })
}

/// An integer's digits in a form that [`crate::size::parse`] reads; octal and binary only exist in TOML.
fn integer_text(digits: &str, radix: u32) -> String {
    let plain = digits.strip_prefix('+').unwrap_or(digits);
    match radix {
        16 => format!("0x{plain}"),
        10 => plain.to_owned(),
        _ => u64::from_str_radix(plain, radix).map_or_else(|_| plain.to_owned(), |value| value.to_string()),
    }
}
