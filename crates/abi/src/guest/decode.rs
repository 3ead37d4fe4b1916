//! Reading guest files (the launcher's side; allocates).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::mem::{offset_of, size_of};

use super::report::{
    ColourCounts, EngineReport, FramesReport, Measuring, PlacementMethod, RegionReport, Report, Residency, Rusage,
    WarningReport,
};
use super::{
    COLOUR_SLOTS, Counter, DisabledReason, EXE_BYTES, EngineCounts, EngineFailure, EngineSlot, EngineState,
    FRAMES_SLOTS, FramesCounts, FramesSlot, GuestFile, GuestWarning, MAGIC, MeasuringSlot, OutOfReach, PATH_BYTES,
    REGION_OTHER, REGION_SLOTS, RESIDENCY_SLOTS, RegionSlot, ResidencySlot, RusageSlot, SIZE_COLUMNS, Started,
    State, UNCOUNTED, VERSION, WARNING_SLOTS, WarningSlot,
};
use crate::plan::{Memory, StrategyKind, Via};

/// Why a file cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than the layout: the guest died while creating it.
    Truncated,
    /// Never finished, or not a guest file.
    NotAGuest,
    /// Another version of the layout.
    Version(u64),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "the guest file is truncated"),
            DecodeError::NotAGuest => write!(f, "the file is not a finished guest file"),
            DecodeError::Version(v) => write!(f, "the guest file has version {v}, this program reads {VERSION}"),
        }
    }
}

pub(super) struct Words<'a>(&'a [u8]);

impl Words<'_> {
    pub(super) fn at(&self, offset: usize) -> u64 {
        let raw = self.0.get(offset..offset + 8).and_then(|raw| raw.try_into().ok());
        raw.map_or(0, u64::from_ne_bytes)
    }

    pub(super) fn some(&self, offset: usize) -> Option<u64> {
        Some(self.at(offset)).filter(|&value| value != 0)
    }

    pub(super) fn errno(&self, offset: usize) -> Option<i32> {
        self.some(offset).and_then(|value| i32::try_from(value).ok())
    }

    fn text(&self, offset: usize, used: u64, room: usize) -> String {
        let used = usize::try_from(used).unwrap_or(room).min(room);
        String::from_utf8_lossy(self.0.get(offset..offset + used).unwrap_or(&[])).into_owned()
    }
}

impl Report {
    /// Decodes a whole guest file, as read from disk.
    pub fn decode(bytes: &[u8]) -> Result<Report, DecodeError> {
        if bytes.len() < size_of::<GuestFile>() {
            return Err(DecodeError::Truncated);
        }
        let words = Words(bytes);
        if words.at(offset_of!(GuestFile, magic)) != MAGIC {
            return Err(DecodeError::NotAGuest);
        }
        let version = words.at(offset_of!(GuestFile, version));
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let end_ns = words.some(offset_of!(GuestFile, end_ns));
        Ok(Report {
            pid: words.at(offset_of!(GuestFile, pid)) as u32,
            ppid: words.at(offset_of!(GuestFile, ppid)) as u32,
            exe: words.text(offset_of!(GuestFile, exe), words.at(offset_of!(GuestFile, exe_bytes)), EXE_BYTES),
            started: Started::from_code(words.at(offset_of!(GuestFile, started))).unwrap_or(Started::Exec),
            state: State::from_code(words.at(offset_of!(GuestFile, state))).unwrap_or(State::Starting),
            disabled: disabled(&words),
            start_ns: words.at(offset_of!(GuestFile, start_ns)),
            ready_ns: words.some(offset_of!(GuestFile, ready_ns)),
            end_ns,
            measured_ns: words.some(offset_of!(GuestFile, measured_ns)),
            placement: match words.at(offset_of!(GuestFile, placement_method)) {
                1 => PlacementMethod::PagemapScan,
                2 => PlacementMethod::Smaps,
                _ => PlacementMethod::None,
            },
            counters: counters(&words),
            warnings: (0..WARNING_SLOTS).filter_map(|slot| warning(&words, slot)).collect(),
            residency: residency(&words),
            residency_dropped: words.at(offset_of!(GuestFile, residency_dropped)),
            regions: regions(&words),
            regions_dropped: words.at(offset_of!(GuestFile, regions_dropped)),
            rusage: end_ns.map(|_| rusage(&words)),
            measuring: measuring(&words),
            engine: engine(&words),
            frames: frames(&words),
        })
    }
}

fn disabled(words: &Words<'_>) -> Option<(DisabledReason, Option<i32>)> {
    let reason = DisabledReason::from_code(words.at(offset_of!(GuestFile, disabled_reason)))?;
    (reason != DisabledReason::None).then(|| (reason, words.errno(offset_of!(GuestFile, disabled_errno))))
}

fn counters(words: &Words<'_>) -> Vec<(&'static str, u64)> {
    let at = |counter: Counter| words.at(offset_of!(GuestFile, counters) + counter as usize * 8);
    let all = Counter::ALL.iter().map(|&counter| (counter.name(), at(counter)));
    all.filter(|&(_, value)| value != 0).collect()
}

fn warning(words: &Words<'_>, slot: usize) -> Option<WarningReport> {
    let at = offset_of!(GuestFile, warnings) + slot * size_of::<WarningSlot>();
    let code = words.some(at + offset_of!(WarningSlot, kind))?;
    Some(WarningReport {
        kind: GuestWarning::from_code(code - 1)?,
        count: words.at(at + offset_of!(WarningSlot, count)),
        errno: words.errno(at + offset_of!(WarningSlot, errno)),
        address: words.at(at + offset_of!(WarningSlot, address)),
        bytes: words.at(at + offset_of!(WarningSlot, bytes)),
    })
}

fn residency(words: &Words<'_>) -> Vec<Residency> {
    let used = words.at(offset_of!(GuestFile, residency_count)).min(RESIDENCY_SLOTS as u64);
    (0..used as usize)
        .map(|slot| {
            let at = offset_of!(GuestFile, residency) + slot * size_of::<ResidencySlot>();
            let path_bytes = words.at(at + offset_of!(ResidencySlot, path_bytes));
            Residency {
                path: words.text(at + offset_of!(ResidencySlot, path), path_bytes, PATH_BYTES),
                pages: words.at(at + offset_of!(ResidencySlot, pages)),
                resident_pages: words.at(at + offset_of!(ResidencySlot, resident)),
            }
        })
        .collect()
}

fn regions(words: &Words<'_>) -> Vec<RegionReport> {
    let used = words.at(offset_of!(GuestFile, region_count)).min(REGION_SLOTS as u64);
    (0..used as usize).map(|slot| region(words, slot)).collect()
}

fn region(words: &Words<'_>, slot: usize) -> RegionReport {
    let at = offset_of!(GuestFile, regions) + slot * size_of::<RegionSlot>();
    let word = |offset| words.at(at + offset);
    let memory = word(offset_of!(RegionSlot, memory));
    let asked = Some(word(offset_of!(RegionSlot, asked))).filter(|&asked| asked != 0);
    let via = if word(offset_of!(RegionSlot, via)) == Via::Hugetlb as u64 { Via::Hugetlb } else { Via::Thp };
    let sizes = |offset: usize| {
        let columns = SIZE_COLUMNS.iter().enumerate().map(|(index, &size)| (size, word(offset + index * 8)));
        columns.filter(|&(_, bytes)| bytes != 0).collect()
    };
    let whole = word(offset_of!(RegionSlot, whole_touched));
    let tiles = (whole, word(offset_of!(RegionSlot, as_asked)));
    RegionReport {
        memory: if memory == REGION_OTHER { None } else { Memory::from_code(memory.wrapping_sub(1)) },
        asked,
        via: asked.map(|_| via),
        rule: word(offset_of!(RegionSlot, rule)),
        start: word(offset_of!(RegionSlot, start)),
        end: word(offset_of!(RegionSlot, end)),
        mapped_bytes: word(offset_of!(RegionSlot, mapped)),
        resident_bytes: word(offset_of!(RegionSlot, resident)),
        by_size: sizes(offset_of!(RegionSlot, by_size)),
        tiles: asked.map(|_| tiles).filter(|_| whole != UNCOUNTED),
        retired_by_size: sizes(offset_of!(RegionSlot, retired_by_size)),
        retired_tiles: asked
            .map(|_| (word(offset_of!(RegionSlot, retired_whole)), word(offset_of!(RegionSlot, retired_as_asked)))),
    }
}

fn rusage(words: &Words<'_>) -> Rusage {
    let word = |offset| words.at(offset_of!(GuestFile, rusage) + offset);
    Rusage {
        user_ns: word(offset_of!(RusageSlot, user_ns)),
        system_ns: word(offset_of!(RusageSlot, system_ns)),
        minor_faults: word(offset_of!(RusageSlot, minor_faults)),
        major_faults: word(offset_of!(RusageSlot, major_faults)),
        max_rss_bytes: word(offset_of!(RusageSlot, max_rss_bytes)),
    }
}

fn measuring(words: &Words<'_>) -> Measuring {
    let word = |offset| words.at(offset_of!(GuestFile, measuring) + offset);
    Measuring {
        user_ns: word(offset_of!(MeasuringSlot, user_ns)),
        system_ns: word(offset_of!(MeasuringSlot, system_ns)),
        minor_faults: word(offset_of!(MeasuringSlot, minor_faults)),
        major_faults: word(offset_of!(MeasuringSlot, major_faults)),
    }
}

fn engine(words: &Words<'_>) -> Option<EngineReport> {
    let at = offset_of!(GuestFile, engine);
    let state = EngineState::from_code(words.at(at + offset_of!(EngineSlot, state))).unwrap_or(EngineState::Off);
    let failure = words.at(at + offset_of!(EngineSlot, failure));
    let failure = EngineFailure::from_code(failure).unwrap_or(EngineFailure::Other);
    if state == EngineState::Off && failure == EngineFailure::None {
        return None;
    }
    Some(EngineReport {
        state,
        failure,
        errno: words.errno(at + offset_of!(EngineSlot, errno)),
        start_ns: words.some(at + offset_of!(EngineSlot, start_ns)),
        ready_ns: words.some(at + offset_of!(EngineSlot, ready_ns)),
        counts: EngineCounts::read(|offset| words.at(at + offset_of!(EngineSlot, counts) + offset)),
        pages_by_node: core::array::from_fn(|node| {
            words.at(at + offset_of!(EngineSlot, pages_by_node) + node * size_of::<u64>())
        }),
    })
}

fn frames(words: &Words<'_>) -> Vec<FramesReport> {
    (0..FRAMES_SLOTS).filter_map(|slot| strategy(words, slot)).collect()
}

fn strategy(words: &Words<'_>, slot: usize) -> Option<FramesReport> {
    let at = offset_of!(GuestFile, frames) + slot * size_of::<FramesSlot>();
    let kind = words.some(at + offset_of!(FramesSlot, kind))?;
    let colours = words.at(at + offset_of!(FramesSlot, colours));
    let word = |table: usize, index: usize| words.at(at + table + index * 8);
    let colour = |index| ColourCounts {
        requests: word(offset_of!(FramesSlot, requests_by_colour), index),
        placed: word(offset_of!(FramesSlot, placed_by_colour), index),
        fallbacks: word(offset_of!(FramesSlot, fallbacks_by_colour), index),
    };
    let reasons = OutOfReach::ALL.iter().enumerate();
    let out_of_reach = reasons.map(|(index, &reason)| (reason, word(offset_of!(FramesSlot, out_of_reach), index)));
    Some(FramesReport {
        number: slot as u32,
        kind: StrategyKind::from_code(kind - 1)?,
        colours,
        counts: FramesCounts::read(|offset| words.at(at + offset_of!(FramesSlot, counts) + offset)),
        out_of_reach: out_of_reach.filter(|&(_, bytes)| bytes != 0).collect(),
        by_colour: (0..colours.min(COLOUR_SLOTS as u64) as usize).map(colour).collect(),
    })
}
