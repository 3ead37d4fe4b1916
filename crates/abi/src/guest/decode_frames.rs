//! Reading the part of a guest file that frame placement has (the launcher's side; allocates).

use alloc::vec::Vec;
use core::mem::{offset_of, size_of};

use super::decode::Words;
use super::report::{ColourCounts, EngineReport, FramesReport};
use super::{
    COLOUR_SLOTS, EngineCounts, EngineFailure, EngineSlot, EngineState, FRAMES_SLOTS, FramesCounts, FramesSlot,
    GuestFile, OutOfReach,
};
use crate::plan::StrategyKind;

pub(super) fn engine(words: &Words<'_>) -> Option<EngineReport> {
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

pub(super) fn frames(words: &Words<'_>) -> Vec<FramesReport> {
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
