//! Mosalloc layouts (MOSAIC): reads CSV in either of its two forms into one mosaic for each pool.
//!
//! - by interval: `type,pageSize,startOffset,endOffset`, offsets in bytes, `pageSize` −1 for the row that gives the
//!   pool's size in `endOffset`;
//! - by pool: `pool_type,pool_size,ragions_list_2mb,offset_2mb,ragions_list_1gb,offset_1gb` (Mosalloc's spelling;
//!   `regions_…` is read too), where `[0-4,7]` with page size s and offset o means bytes `[o, o+4s)` and
//!   `[o+7s, o+8s)`: a range leaves out its end, a single number is one page.
//!
//! Columns are found by name. Outside its intervals, and beyond the size of a pool, memory has 4K pages, as in
//! Mosalloc; the size of a pool is only used to check the intervals, because pagelab reserves nothing.
//!
//! Two oddities of Mosalloc's own script are not copied: it merges neighbours such as `3,4` to `3-4` and thereby loses
//! page 4, and it computes 1 GiB intervals in units of 1 MiB.

use std::sync::Arc;

use crate::error::{Place, PolicyError};
use crate::raw::{At, RawLayout, RawMosaic, RawTile};
use crate::units::PageSize;

/// Columns of the form by interval.
pub const INTERVAL_COLUMNS: &[&str] = &["type", "pageSize", "startOffset", "endOffset"];
/// Columns of the form by pool.
pub const POOL_COLUMNS: &[&str] =
    &["pool_type", "pool_size", "ragions_list_2mb", "offset_2mb", "ragions_list_1gb", "offset_1gb"];
const TYPES: &[&str] = &["brk", "mmap", "file"];

/// Reads a layout; `path` is for messages only.
///
/// # Errors
/// The first row that is refused, with its line and what is allowed there.
pub fn read_layout(text: &str, path: &str) -> Result<RawLayout, PolicyError> {
    let source: Arc<str> = Arc::from(path);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = Vec::new();
    for (number, line) in (1_u32..).zip(text.lines()) {
        if !line.trim().is_empty() {
            let place = Place::line(&source, number);
            rows.push(Row { fields: fields(line, &place)?, place });
        }
    }
    let Some((header, rows)) = rows.split_first() else {
        let message = "the layout is empty: its first line must name the columns";
        return Err(PolicyError::new(&Place::whole(path), message).allowed(both_forms()));
    };
    if rows.is_empty() {
        return Err(PolicyError::new(&header.place, "the layout has a header and no rows"));
    }
    let by_pool = header.fields.iter().any(|name| same(name, "pool_type"));
    let pools = if by_pool { read_by_pool(header, rows)? } else { read_by_interval(header, rows)? };
    let [brk, mmap, file] = pools.map(|pool| pool.map(Pool::into_mosaic).transpose());
    Ok(RawLayout { brk: brk?, mmap: mmap?, file: file? })
}

fn both_forms() -> [String; 2] {
    [INTERVAL_COLUMNS.join(","), POOL_COLUMNS.join(",")]
}

/// One pool while it is read.
struct Pool {
    kind: usize,
    place: Place,
    size: Option<u64>,
    tiles: Vec<(u64, u64, u64, Place)>,
}

type Pools = [Option<Pool>; 3];

impl Pool {
    fn new(kind: usize, place: &Place) -> Pool {
        Pool { kind, place: place.clone(), size: None, tiles: Vec::new() }
    }

    fn set_size(&mut self, size: u64, place: &Place) -> Result<(), PolicyError> {
        if self.size.replace(size).is_some() {
            let message = format!("the size of pool `{}` is given twice", TYPES[self.kind]);
            return Err(PolicyError::new(place, message));
        }
        Ok(())
    }

    fn add(&mut self, start: u64, end: u64, size: u64, place: &Place) -> Result<(), PolicyError> {
        if TYPES[self.kind] == "file" && size != PageSize::K4.bytes() {
            let message = "the file pool cannot have huge pages: the page cache serves file mappings in 4K pages";
            return Err(PolicyError::new(place, message).allowed(["brk", "mmap"]));
        }
        self.tiles.push((start, end, size, place.clone()));
        Ok(())
    }

    fn into_mosaic(self) -> Result<RawMosaic, PolicyError> {
        let name = TYPES[self.kind];
        let Some(pool_size) = self.size else {
            let message = format!("pool `{name}` has intervals and no size: add the row {name},-1,0,SIZE");
            return Err(PolicyError::new(&self.place, message));
        };
        let tile = |(start, end, size, place): (u64, u64, u64, Place)| {
            if end > pool_size {
                let message =
                    format!("interval {start}-{end} ends beyond its pool `{name}`, which has {pool_size} bytes");
                return Err(PolicyError::new(&place, message));
            }
            let tile = RawTile { start: start.to_string(), end: end.to_string(), size: size.to_string() };
            Ok(At::new(tile, &place))
        };
        let tiles = self.tiles.into_iter().map(tile).collect::<Result<_, _>>()?;
        Ok(RawMosaic { tiles, otherwise: Some(At::new("4K".to_owned(), &self.place)) })
    }
}

/// The pool that a row names; made if no earlier row names it.
fn pool<'p>(pools: &'p mut Pools, name: &str, place: &Place) -> Result<&'p mut Pool, PolicyError> {
    let kind = TYPES
        .iter()
        .position(|known| *known == name)
        .ok_or_else(|| PolicyError::new(place, format!("unknown pool {name:?}")).allowed(TYPES))?;
    Ok(pools[kind].get_or_insert_with(|| Pool::new(kind, place)))
}

fn read_by_interval(header: &Row, rows: &[Row]) -> Result<Pools, PolicyError> {
    let columns = Columns::find(header, INTERVAL_COLUMNS)?;
    let mut pools = Pools::default();
    for row in rows {
        let [name, page_size, start, end] = columns.pick(row)?;
        let pool = pool(&mut pools, name, &row.place)?;
        let start = bytes(start, "startOffset", &row.place)?;
        let end = bytes(end, "endOffset", &row.place)?;
        if page_size == "-1" {
            if start != 0 {
                return Err(PolicyError::new(&row.place, "a pool starts at offset 0").allowed(["0"]));
            }
            pool.set_size(end, &row.place)?;
            continue;
        }
        let size = bytes(page_size, "pageSize", &row.place)
            .map_err(|error| error.allowed(["-1 (size of the pool)", "2097152", "1073741824"]))?;
        pool.add(start, end, size, &row.place)?;
    }
    Ok(pools)
}

fn read_by_pool(header: &Row, rows: &[Row]) -> Result<Pools, PolicyError> {
    let columns = Columns::find(header, POOL_COLUMNS)?;
    let mut pools = Pools::default();
    for row in rows {
        let [name, pool_size, list_2m, offset_2m, list_1g, offset_1g] = columns.pick(row)?;
        let pool = pool(&mut pools, name, &row.place)?;
        pool.set_size(bytes(pool_size, "pool_size", &row.place)?, &row.place)?;
        for (list, offset, size) in [(list_2m, offset_2m, PageSize::M2), (list_1g, offset_1g, PageSize::G1)] {
            let offset = bytes(offset, "offset", &row.place)?;
            for (first, last) in pages(list, &row.place)? {
                let (start, end) = place_pages(first, last, size, offset).ok_or_else(|| {
                    PolicyError::new(&row.place, format!("pages {first}-{last} of {size} lie beyond 2^64 bytes"))
                })?;
                pool.add(start, end, size.bytes(), &row.place)?;
            }
        }
    }
    Ok(pools)
}

fn place_pages(first: u64, last: u64, size: PageSize, offset: u64) -> Option<(u64, u64)> {
    let at = |page: u64| page.checked_mul(size.bytes())?.checked_add(offset);
    Some((at(first)?, at(last)?))
}

/// The page numbers of `[0-4,7]`, each as the half-open range it covers.
fn pages(list: &str, place: &Place) -> Result<Vec<(u64, u64)>, PolicyError> {
    let bad = |item: &str| {
        PolicyError::new(place, format!("{item:?} is not a list of pages")).allowed([
            "[]",
            "[0-1024]",
            "[0-16,20,32-64]",
        ])
    };
    let inner = list.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(list).trim();
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    let page = |text: &str| -> Option<u64> {
        let text = text.trim();
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    let range = |item: &str| {
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (page(first)?, page(last)?),
            None => (page(item)?, page(item)?.checked_add(1)?),
        };
        Some((first, last))
    };
    inner.split(',').map(|item| range(item).ok_or_else(|| bad(item))).collect()
}

fn bytes(text: &str, column: &str, place: &Place) -> Result<u64, PolicyError> {
    crate::size::parse(text).map_err(|error| {
        PolicyError::new(place, format!("{column}: {text:?} is not a size: {}", error.reason()))
            .allowed(crate::size::FORMS)
    })
}

/// One line, split.
struct Row {
    fields: Vec<String>,
    place: Place,
}

/// Splits at commas outside quotes and square brackets: Mosalloc's lists contain commas, quoted or not.
fn fields(line: &str, place: &Place) -> Result<Vec<String>, PolicyError> {
    let mut fields = vec![String::new()];
    let (mut quoted, mut depth) = (false, 0_u32);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted && depth == 0 => fields.push(String::new()),
            _ => {
                match c {
                    '[' => depth += 1,
                    ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if let Some(last) = fields.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    if quoted || depth != 0 {
        let what = if quoted { "a quotation mark" } else { "a bracket" };
        return Err(PolicyError::new(place, format!("{what} is not closed")));
    }
    Ok(fields.into_iter().map(|field| field.trim().to_owned()).collect())
}

/// Whether two column names differ only in case, spaces, underscores and Mosalloc's spelling of «regions».
fn same(written: &str, known: &str) -> bool {
    let plain = |name: &str| {
        let letters = name.chars().filter(|c| !matches!(c, ' ' | '_'));
        letters.collect::<String>().to_ascii_lowercase().replace("ragions", "regions")
    };
    plain(written) == plain(known)
}

/// The position of each wanted column in the rows.
struct Columns {
    wanted: &'static [&'static str],
    positions: Vec<usize>,
    width: usize,
}

impl Columns {
    fn find(header: &Row, wanted: &'static [&'static str]) -> Result<Columns, PolicyError> {
        let mut positions = Vec::new();
        for name in wanted {
            let mut matches = header.fields.iter().enumerate().filter(|(_, field)| same(field, name));
            let position = match (matches.next(), matches.next()) {
                (Some((position, _)), None) => position,
                (None, _) => {
                    let message = format!("column `{name}` is missing");
                    return Err(PolicyError::new(&header.place, message).allowed(wanted));
                }
                (Some(_), Some(_)) => {
                    let message = format!("column `{name}` stands there twice");
                    return Err(PolicyError::new(&header.place, message).allowed(wanted));
                }
            };
            positions.push(position);
        }
        let known = |field: &String| wanted.iter().any(|name| same(field, name));
        if let Some(unknown) = header.fields.iter().find(|field| !known(field)) {
            let message = format!("unknown column {unknown:?}");
            return Err(PolicyError::new(&header.place, message).allowed(wanted));
        }
        Ok(Columns { wanted, positions, width: header.fields.len() })
    }

    /// The fields of a row in the order of the wanted columns.
    fn pick<'r, const N: usize>(&self, row: &'r Row) -> Result<[&'r str; N], PolicyError> {
        if row.fields.len() != self.width {
            let message = format!("{} fields instead of {}", row.fields.len(), self.width);
            return Err(PolicyError::new(&row.place, message).allowed([self.wanted.join(",")]));
        }
        let mut picked = [""; N];
        for (slot, position) in picked.iter_mut().zip(&self.positions) {
            *slot = row.fields.get(*position).map_or("", String::as_str);
        }
        Ok(picked)
    }
}

#[cfg(test)]
mod tests;
