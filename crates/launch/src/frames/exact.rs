//! Exact frames: that they exist, and that programs can have them at all.

use crate::error::{Error, Result};
use crate::sys;
use crate::warnings::{Kind, Severity, Warnings};
use pagelab_policy::plan::{ANYWHERE, PlanSpec, StrategyKind};
use serde_json::json;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// One word of flags for each frame; root only.
const FLAGS: &str = "/proc/kpageflags";
/// Number of frames whose flags are read by one call.
const BATCH: usize = 4096;

/// Bits of [`FLAGS`] that no program's page ever has (Documentation/admin-guide/mm/pagemap.rst), with what they mean.
const NEVER: [(u32, &str); 4] = [
    (20, "there is no memory with this number"),
    (32, "it is reserved by the kernel or the firmware"),
    (19, "its memory is broken (hwpoison)"),
    (23, "it is offline"),
];

/// Refuses frames that no program can have.
pub fn check(plan: &PlanSpec, warnings: &mut Warnings) -> Result<()> {
    let exact = plan.strategies.iter().filter(|strategy| strategy.kind == StrategyKind::Exact);
    let mut frames: Vec<u64> = exact.flat_map(|strategy| strategy.values.iter().copied()).collect();
    frames.retain(|frame| *frame != ANYWHERE);
    frames.sort_unstable();
    let named = frames.len();
    frames.dedup();
    if frames.len() < named {
        let message = format!(
            "{} of {named} pages are to have a frame that another page is to have as well: only one of them can",
            named - frames.len()
        );
        warnings.warn(Kind::FramesFallback, message, json!({"pages": named - frames.len(), "reason": "repeated"}));
    }
    if frames.is_empty() {
        return Ok(());
    }
    match File::open(FLAGS).map(|flags| first_bad(&frames, |at, into| read_words(&flags, at, into))) {
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some((frame, why)))) => Err(Error::Cannot(format!(
            "frames = \"exact\" names frame {frame:#x}, and no program can have it: {why}; for frames that exist, run: \
             sudo pagelab map --save FILE PID, or look at: sudo grep RAM /proc/iomem"
        ))),
        Ok(Err(error)) | Err(error) => {
            let why = sys::errno_text(&error);
            let message = format!("whether the exact frames exist was not checked ({FLAGS}: {why}); run as root");
            warnings.add(Kind::FramesFallback, Severity::Info, message, json!({"errno": why}));
            Ok(())
        }
    }
}

/// Reads words from `at` on; fewer where the file ends.
fn read_words(file: &File, at: u64, into: &mut [u64]) -> io::Result<usize> {
    let mut bytes = vec![0; into.len() * 8];
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], at * 8 + got as u64) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    for (word, raw) in into.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = raw.try_into().map_or(0, u64::from_ne_bytes);
    }
    Ok(got / 8)
}

/// The first of the sorted `frames` that no program can have, and why. `read` fills words from a frame number on and
/// returns their number.
fn first_bad(
    frames: &[u64],
    read: impl Fn(u64, &mut [u64]) -> io::Result<usize>,
) -> io::Result<Option<(u64, &'static str)>> {
    let mut window = vec![0; BATCH];
    let (mut start, mut length) = (0, 0);
    for &frame in frames {
        if frame < start || frame >= start + length as u64 {
            start = frame;
            length = read(start, &mut window)?;
        }
        let Some(flags) = window[..length].get((frame - start) as usize) else {
            return Ok(Some((frame, "it lies beyond the memory of this machine")));
        };
        if let Some((_, why)) = NEVER.iter().find(|(bit, _)| flags >> bit & 1 == 1) {
            return Ok(Some((frame, why)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(frames: &[u64], memory: &[u64]) -> Option<(u64, &'static str)> {
        let read = |at: u64, into: &mut [u64]| {
            let there = memory.get(at as usize..).unwrap_or(&[]);
            let count = there.len().min(into.len());
            into[..count].copy_from_slice(&there[..count]);
            Ok(count)
        };
        first_bad(frames, read).expect("readable")
    }

    #[test]
    fn frames_are_judged_by_their_flags() {
        let mut memory = vec![0; 3 * BATCH];
        memory[5] = 1 << 32;
        memory[6] = 1 << 20;
        memory[7] = 1 << 5 | 1 << 12;
        assert_eq!(judge(&[0, 7, 8192, 12287], &memory), None);
        assert_eq!(judge(&[4, 5, 6], &memory).map(|(frame, _)| frame), Some(5));
        assert_eq!(judge(&[6], &memory), Some((6, "there is no memory with this number")));
        let beyond = judge(&[1, 12288], &memory);
        assert_eq!(beyond, Some((12288, "it lies beyond the memory of this machine")));
        assert_eq!(judge(&[1 << 39], &memory).map(|(frame, _)| frame), Some(1 << 39));
    }
}
