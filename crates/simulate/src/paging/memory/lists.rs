//! Memories whose policy decides at faults and sets at most one bit at hits: an array of frames for each colour.

use super::super::pages::Id;
use super::Replace;
use crate::cpu;

const ABSENT: u32 = u32::MAX;

/// How a policy chooses among the frames of a full list.
pub trait Choose: std::fmt::Debug + Send + Sync {
    /// For lists of `frames` frames.
    fn new(lists: usize, frames: u32, seed: u64) -> Self;
    /// The page in this frame was used again, or has just come.
    fn used(&mut self, frame: usize);
    /// Which of the frames of a full list, the first of which is `first`, loses its page.
    fn victim(&mut self, list: usize, first: usize, frames: u32) -> usize;
}

/// One memory.
#[derive(Debug)]
pub struct Lists<C> {
    frames: u32,
    choose: C,
    /// The frame of each page, or [`ABSENT`].
    place: Vec<u32>,
    /// The page in each frame.
    held: Vec<Id>,
    /// Frames in use, by list.
    used: Vec<u32>,
}

impl<C: Choose> Lists<C> {
    pub fn new(lists: usize, frames: u32, seed: u64) -> Self {
        let choose = C::new(lists, frames, seed);
        let held = vec![0; lists * frames as usize];
        Self { frames, choose, place: Vec::new(), held, used: vec![0; lists] }
    }

    #[inline(always)]
    fn fault(&mut self, id: Id, list: usize) -> usize {
        let first = list * self.frames as usize;
        let used = &mut self.used[list];
        let frame = if *used < self.frames {
            *used += 1;
            first + *used as usize - 1
        } else {
            let frame = self.choose.victim(list, first, self.frames);
            self.place[self.held[frame] as usize] = ABSENT;
            frame
        };
        self.held[frame] = id;
        self.place[id as usize] = frame as u32;
        frame
    }
}

impl<C: Choose> Replace for Lists<C> {
    fn feed(&mut self, ids: &[Id], lists: &[u16], bound: usize) -> u64 {
        self.place.resize(bound, ABSENT);
        for &id in ids {
            cpu::prefetch(&self.place, id as usize);
        }
        let mut faults = 0;
        for (&id, &list) in ids.iter().zip(lists) {
            let mut frame = self.place[id as usize] as usize;
            if frame == ABSENT as usize {
                faults += 1;
                frame = self.fault(id, list as usize);
            }
            self.choose.used(frame);
        }
        faults
    }
}
