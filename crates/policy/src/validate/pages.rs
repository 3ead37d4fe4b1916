//! Axis `pages`: checks of sizes against the machine's, and of mosaics.

use crate::error::{Place, PolicyError};
use crate::machine::Machine;
use crate::raw::{At, RawMosaic, RawPages, RawTile};
use crate::types::{Backing, Memory, Mosaic, POOL_BYTES, Pages, Scope, Tile, Via};
use crate::units::{PageSize, PoolOffset};

use super::number;

/// Checks sizes and intervals, not yet whether the memory that they are for can have them ([`check_scope`] does).
///
/// Layouts are split by pool before they come here; a layout is refused.
pub(super) fn validate(written: &At<RawPages>, via: Via, machine: &Machine) -> Result<Pages, PolicyError> {
    match &written.value {
        RawPages::Word(word) => Ok(match backing(word, &written.place, via, machine, 1)? {
            Backing::Kernel => Pages::Kernel,
            Backing::Size(size) => Pages::Size(size),
        }),
        RawPages::Mosaic(raw) => Ok(Pages::Mosaic(mosaic(raw, &written.place, via, machine)?)),
        RawPages::Layout(_) => Err(PolicyError::new(&written.place, "a layout has a pool for each kind of memory")),
    }
}

pub(super) fn mosaic(raw: &RawMosaic, place: &Place, via: Via, machine: &Machine) -> Result<Mosaic, PolicyError> {
    let otherwise = match &raw.otherwise {
        None => Backing::Size(machine.base_page_bytes),
        Some(word) => backing(&word.value, &word.place, via, machine, 1)?,
    };
    let mut tiles = raw
        .tiles
        .iter()
        .map(|at| Ok((tile(at, via, machine)?, &at.place)))
        .collect::<Result<Vec<_>, PolicyError>>()?;
    if tiles.is_empty() && raw.otherwise.is_none() {
        let message = "the mosaic has no intervals: give at least one, or a single page size instead";
        return Err(PolicyError::new(place, message));
    }
    tiles.sort_by_key(|(tile, _)| tile.start);
    for pair in tiles.windows(2) {
        if let [(before, first_place), (after, place)] = pair
            && before.end > after.start
        {
            let message = format!(
                "interval {}-{} overlaps interval {}-{} ({first_place})",
                after.start, after.end, before.start, before.end
            );
            return Err(PolicyError::new(place, message));
        }
    }
    Ok(Mosaic { tiles: merge(tiles.into_iter().map(|(tile, _)| tile)), otherwise })
}

/// Joins neighbours of one size, so that equal mosaics are equal values.
fn merge(tiles: impl Iterator<Item = Tile>) -> Vec<Tile> {
    let mut merged: Vec<Tile> = Vec::new();
    for tile in tiles {
        match merged.last_mut() {
            Some(last) if last.end == tile.start && last.size == tile.size => last.end = tile.end,
            _ => merged.push(tile),
        }
    }
    merged
}

fn tile(written: &At<RawTile>, via: Via, machine: &Machine) -> Result<Tile, PolicyError> {
    let (raw, place) = (&written.value, &written.place);
    let start = number(&raw.start, place, "start of an interval")?;
    let end = number(&raw.end, place, "end of an interval")?;
    if start >= end {
        let message = format!("interval {}-{} is empty: its end must lie above its start", raw.start, raw.end);
        return Err(PolicyError::new(place, message));
    }
    if end > POOL_BYTES.0 {
        let message = format!("interval {}-{} ends beyond the pool, which has {POOL_BYTES}", raw.start, raw.end);
        return Err(PolicyError::new(place, message));
    }
    let wanted = crate::size::parse(&raw.size).ok().filter(|bytes| *bytes > 0);
    let needed = wanted.map_or(1, |bytes| (end - start).div_ceil(bytes));
    let Backing::Size(size) = backing(&raw.size, place, via, machine, needed)? else {
        let message = "an interval needs a page size; leave it out to give it the size of `otherwise`";
        return Err(PolicyError::new(place, message).allowed(machine.offered()));
    };
    for (what, position) in [("start", start), ("end", end)] {
        if !size.aligns(position) {
            let below = position - position % size.bytes();
            let message = format!(
                "interval {}-{} of {size} pages is not aligned: its {what} is no multiple of {size}",
                raw.start, raw.end
            );
            let near = [below, below + size.bytes()].map(crate::size::format);
            return Err(PolicyError::new(place, message).next(format!("nearest: {} or {}", near[0], near[1])));
        }
    }
    Ok(Tile { start: PoolOffset(start), end: PoolOffset(end), size })
}

/// Reads a page size that the machine offers under `via`, or `kernel`. `needed` pages would be taken from a hugetlb
/// pool.
fn backing(text: &str, place: &Place, via: Via, machine: &Machine, needed: u64) -> Result<Backing, PolicyError> {
    if text == "kernel" {
        return Ok(Backing::Kernel);
    }
    let bytes = crate::size::parse(text).map_err(|error| {
        let message = format!("{text:?} is not a page size: {}", error.reason());
        PolicyError::new(place, message).allowed(with_kernel(machine.offered()))
    })?;
    let size = PageSize::new(bytes).ok_or_else(|| {
        let message = format!("{text:?} is not a page size: no processor has pages of that size");
        PolicyError::new(place, message).allowed(with_kernel(machine.offered()))
    })?;
    check_offered(size, place, via, machine, needed)?;
    Ok(Backing::Size(size))
}

fn with_kernel(mut offered: Vec<String>) -> Vec<String> {
    offered.push("kernel".to_owned());
    offered
}

fn check_offered(
    size: PageSize,
    place: &Place,
    via: Via,
    machine: &Machine,
    needed: u64,
) -> Result<(), PolicyError> {
    if size == machine.base_page_bytes {
        return Ok(());
    }
    if machine.effective_via(size, via) == Via::Hugetlb {
        return check_hugetlb(size, place, via, machine, needed);
    }
    if machine.thp_bytes != Some(size) && !machine.mthp_switchable {
        let message = format!("pages of {size} need root: the kernel has only system-wide switches for mTHP sizes");
        return Err(PolicyError::new(place, message)
            .allowed(with_kernel(machine.offered()))
            .next("run pagelab as root, on a machine of your own"));
    }
    Ok(())
}

fn check_hugetlb(
    size: PageSize,
    place: &Place,
    via: Via,
    machine: &Machine,
    needed: u64,
) -> Result<(), PolicyError> {
    let total = machine.pool(size).and_then(|pool| pool.total_pages).unwrap_or(0);
    // The setting is the size of the pool, whose pages in use stay.
    let enable = format!("run: sudo pagelab doctor --fix hugepages-{size}={}", total + needed.max(1));
    let (message, allowed) = match machine.pool(size) {
        Some(pool) if pool.pages != Some(0) => return Ok(()),
        Some(_) if total > 0 => (format!("all {total} huge pages of {size} are in use"), machine.offered()),
        Some(_) => (format!("no huge pages of {size} are reserved"), machine.offered()),
        None if via == Via::Hugetlb && machine.is_transparent(size) => {
            let message = format!("hugetlb has no pages of {size} on this machine, only transparent huge pages");
            let mut allowed = vec![machine.base_page_bytes.to_string()];
            allowed.extend(machine.offered_hugetlb());
            return Err(PolicyError::new(place, message)
                .allowed(with_kernel(allowed))
                .next("say via = \"thp\" for this size"));
        }
        None => (format!("this machine does not offer pages of {size}"), machine.offered()),
    };
    let error = PolicyError::new(place, message).allowed(with_kernel(allowed));
    let largest_transparent = machine.thp_bytes.unwrap_or(machine.base_page_bytes);
    if machine.pool(size).is_some() || size >= largest_transparent {
        return Err(error.next(enable));
    }
    Err(error.next("run: pagelab doctor, to see what it offers"))
}

/// Why `memory` cannot have pages of `size` made by `via`; `None` if it can.
#[must_use]
pub(crate) fn obstacle(memory: Memory, size: PageSize, via: Via, machine: &Machine) -> Option<&'static str> {
    if size == machine.base_page_bytes || matches!(memory, Memory::Heap | Memory::Anon | Memory::Arenas) {
        return None;
    }
    match (memory, machine.effective_via(size, via)) {
        (Memory::File, _) => {
            Some("file mappings are served from the page cache, whose page sizes the kernel chooses")
        }
        (_, Via::Hugetlb) => {
            Some("hugetlb pages must be mapped anew, and this memory exists before pagelab starts")
        }
        (_, Via::Thp) if machine.thp_bytes == Some(size) => None,
        (_, Via::Thp) => {
            Some("mTHP pages are made when memory is first touched, and this memory is in use already")
        }
    }
}

/// Every size that `pages` names.
pub(crate) fn sizes(pages: &Pages) -> Vec<PageSize> {
    match pages {
        Pages::Kernel => Vec::new(),
        Pages::Size(size) => vec![*size],
        Pages::Mosaic(mosaic) => {
            let otherwise = match mosaic.otherwise {
                Backing::Kernel => None,
                Backing::Size(size) => Some(size),
            };
            mosaic.tiles.iter().map(|tile| tile.size).chain(otherwise).collect()
        }
    }
}

/// Whether `pages` can govern `memory`: under a rule for `all` and the default, other memory stays with the kernel.
#[must_use]
pub(crate) fn applies_to(pages: &Pages, memory: Memory, via: Via, machine: &Machine) -> bool {
    let mosaic_without_pool = matches!(pages, Pages::Mosaic(_)) && memory.pool_bytes().is_none();
    !mosaic_without_pool && sizes(pages).into_iter().all(|size| obstacle(memory, size, via, machine).is_none())
}

/// Refuses sizes for memory that a rule names and that cannot have them.
pub(super) fn check_scope(
    pages: &Pages,
    scope: Scope,
    via: Via,
    machine: &Machine,
    place: &Place,
) -> Result<(), PolicyError> {
    match scope {
        Scope::All => Ok(()),
        Scope::Memory(set) => set.iter().try_for_each(|memory| check_memory(pages, memory, via, machine, place)),
        Scope::Range { start, end } => check_range(pages, (start.0, end.0), via, machine, place),
    }
}

fn check_memory(
    pages: &Pages,
    memory: Memory,
    via: Via,
    machine: &Machine,
    place: &Place,
) -> Result<(), PolicyError> {
    if matches!(pages, Pages::Mosaic(_)) && memory.pool_bytes().is_none() {
        let message = format!("`{}` has no pool that a mosaic's offsets could count in", memory.name());
        return Err(PolicyError::new(place, message).allowed(["heap", "anon", "arenas"]));
    }
    for size in sizes(pages) {
        if let Some(why) = obstacle(memory, size, via, machine) {
            let message = format!("`{}` cannot have pages of {size}: {why}", memory.name());
            let possible = machine.offered_sizes(via);
            let possible = possible.into_iter().filter(|size| obstacle(memory, *size, via, machine).is_none());
            let words = possible.map(|size| size.to_string()).collect();
            return Err(PolicyError::new(place, message).allowed(with_kernel(words)));
        }
    }
    Ok(())
}

fn check_range(
    pages: &Pages,
    (start, end): (u64, u64),
    via: Via,
    machine: &Machine,
    place: &Place,
) -> Result<(), PolicyError> {
    if matches!(pages, Pages::Mosaic(_)) {
        let message = "a range takes one page size: write one rule for each interval";
        return Err(PolicyError::new(place, message));
    }
    for size in sizes(pages) {
        if machine.effective_via(size, via) == Via::Hugetlb {
            let message = format!("a range cannot have hugetlb pages of {size}: use a mosaic in a pool");
            return Err(PolicyError::new(place, message).allowed(["heap", "anon", "arenas"]));
        }
        if !size.aligns(start) || !size.aligns(end) {
            let message = format!("range {start:#x}-{end:#x} of {size} pages is not aligned to {size}");
            return Err(PolicyError::new(place, message));
        }
    }
    Ok(())
}
