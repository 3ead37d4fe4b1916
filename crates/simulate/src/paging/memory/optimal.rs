//! OPT (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966): the
//! page whose next use lies farthest ahead leaves. What lies ahead is known after a first pass that spills to disk.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use super::super::Touch;
use super::super::colouring::{Chain, Colouring, ColouringError};
use super::Size;
use crate::cpu;
use crate::pages::{Id, Pages};
use next_uses::{MEMORIES, NextUses};
use spill::Spill;

mod next_uses;
mod spill;

/// References held in memory at a time.
const BLOCK: usize = 1 << 16;
/// The next use of a page that is not used again.
const NEVER: u64 = u64::MAX;

/// The disk refused.
#[derive(Debug)]
pub struct SpillError {
    /// The operation.
    pub operation: &'static str,
    /// The error, with its number.
    pub source: io::Error,
}

/// Memories under OPT: fed first, then evaluated.
#[derive(Debug)]
pub struct Optimal {
    pages: Pages,
    memories: Vec<(Size, Chain)>,
    uses: Spill<4>,
    last: Option<u64>,
    references: u64,
    error: Option<SpillError>,
}

impl Optimal {
    /// Empty memories; `file` must be empty, readable and writable, and takes 4 bytes for each change of page while fed.
    ///
    /// # Errors
    /// Colour counts that cannot be simulated.
    pub fn new(file: File, colouring: &Colouring, sizes: &[Size]) -> Result<Self, ColouringError> {
        let memory = |&size: &Size| Ok((size, Chain::split(colouring, &[size.colours])?.remove(0)));
        let memories = sizes.iter().map(memory).collect::<Result<_, _>>()?;
        let uses = Spill::new(file);
        Ok(Self { pages: Pages::default(), memories, uses, last: None, references: 0, error: None })
    }

    /// Takes the next references. A disk that refuses is told by [`Optimal::faults`].
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        for reference in references {
            self.references += reference.count();
            if self.last != Some(reference.page()) {
                self.last = Some(reference.page());
                let id = self.pages.id(reference.page());
                if self.error.is_none() {
                    self.error = self.uses.push(id.to_le_bytes()).err();
                }
            }
        }
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Walks back over the uses, then forward, once for each number of colours: faults of each memory. `file`: another one, for 8
    /// bytes a change of page.
    ///
    /// # Errors
    /// A disk that refused, now or while fed.
    pub fn faults(&mut self, file: File) -> Result<Vec<(Size, u64)>, SpillError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.uses.flush()?;
        let mut next_uses = Spill::<8>::new(file);
        let mut faults = vec![0; self.memories.len()];
        let mut counts: Vec<u32> = self.memories.iter().map(|(size, _)| size.colours).collect();
        counts.sort_unstable();
        counts.dedup();
        for colours in counts {
            let alike: Vec<usize> =
                (0..self.memories.len()).filter(|nth| self.memories[*nth].0.colours == colours).collect();
            let chain = &self.memories[alike[0]].1;
            let lists: Vec<u16> =
                (0..self.pages.len() as Id).map(|id| chain.code(self.pages.page(id)) as u16).collect();
            let lengths = self.walk_back(&mut next_uses, &lists, 1 << chain.code_bits())?;
            let mut groups: Vec<Group> = alike
                .chunks(MEMORIES)
                .map(|part| Group::new(part.iter().map(|nth| self.memories[*nth].0.frames), &lengths))
                .collect();
            self.walk_forward(&next_uses, &lists, &lengths, &mut groups)?;
            let found = groups.iter().flat_map(|group| group.faults.iter().take(group.frames.len()));
            alike.into_iter().zip(found).for_each(|(nth, found)| faults[nth] = *found);
        }
        Ok(self.memories.iter().map(|(size, _)| *size).zip(faults).collect())
    }

    /// Writes the next use of each page, counted in uses of its list from the list's end; returns how long each list is.
    fn walk_back(&self, next_uses: &mut Spill<8>, lists: &[u16], count: usize) -> Result<Vec<u64>, SpillError> {
        let mut seen = vec![NEVER; self.pages.len()];
        let mut lengths = vec![0; count];
        let mut ids = Vec::new();
        for block in (0..self.uses.blocks()).rev() {
            self.uses.read(block, &mut ids)?;
            let mut nexts = vec![[0; 8]; ids.len()];
            for (i, id) in ids.iter().enumerate().rev() {
                if let Some(soon) = i.checked_sub(AHEAD) {
                    cpu::prefetch(&seen, Id::from_le_bytes(ids[soon]) as usize);
                }
                let id = Id::from_le_bytes(*id) as usize;
                let length = &mut lengths[lists[id] as usize];
                nexts[i] = std::mem::replace(&mut seen[id], *length).to_le_bytes();
                *length += 1;
            }
            next_uses.write(block, &nexts)?;
        }
        Ok(lengths)
    }

    fn walk_forward(
        &self,
        next_uses: &Spill<8>,
        lists: &[u16],
        lengths: &[u64],
        groups: &mut [Group],
    ) -> Result<(), SpillError> {
        let mut now = vec![0; lengths.len()];
        let (mut ids, mut nexts, mut uses) = (Vec::new(), Vec::new(), Vec::new());
        for block in 0..self.uses.blocks() {
            self.uses.read(block, &mut ids)?;
            next_uses.read(block, &mut nexts)?;
            uses.clear();
            uses.extend(ids.iter().zip(&nexts).map(|(id, next)| {
                let list = lists[Id::from_le_bytes(*id) as usize];
                let at = &mut now[list as usize];
                *at += 1;
                let next = u64::from_le_bytes(*next);
                let next = if next == NEVER { NEVER } else { lengths[list as usize] - 1 - next };
                Use { list, now: *at - 1, next }
            }));
            groups.iter_mut().for_each(|group| group.take(&uses));
        }
        Ok(())
    }
}

/// How far ahead memory is fetched.
const AHEAD: usize = 16;

/// A use of a page: when, in uses of its list, and when the next one is.
#[derive(Debug, Clone, Copy)]
struct Use {
    list: u16,
    now: u64,
    next: u64,
}

/// Memories that are simulated side by side, with as many colours.
#[derive(Debug)]
struct Group {
    /// Of each, the frames of a list.
    frames: Vec<u32>,
    lists: Vec<List>,
    faults: [u64; MEMORIES],
}

/// One colour's pages in all memories of a group.
#[derive(Debug)]
struct List {
    next_uses: NextUses,
    pages: [u32; MEMORIES],
    /// Those that are not used again; they leave first.
    done: [u32; MEMORIES],
}

impl Group {
    fn new(frames: impl Iterator<Item = u32>, lengths: &[u64]) -> Self {
        let frames: Vec<u32> = frames.collect();
        let list = |length: &u64| List {
            next_uses: NextUses::new(*length, frames.len()),
            pages: [0; MEMORIES],
            done: [0; MEMORIES],
        };
        Self { lists: lengths.iter().map(list).collect(), frames, faults: [0; MEMORIES] }
    }

    fn take(&mut self, uses: &[Use]) {
        cpu::widest(
            #[inline(always)]
            || {
                for (nth, one) in uses.iter().enumerate() {
                    if let Some(soon) = uses.get(nth + AHEAD)
                        && soon.next != NEVER
                    {
                        self.lists[soon.list as usize].next_uses.prefetch(soon.next);
                    }
                    self.touch(*one);
                }
            },
        );
    }

    #[inline(always)]
    fn touch(&mut self, one: Use) {
        let list = &mut self.lists[one.list as usize];
        let held = list.next_uses.held(one.now);
        for (memory, frames) in self.frames.iter().enumerate() {
            if held >> memory & 1 == 1 {
                continue;
            }
            self.faults[memory] += 1;
            if list.pages[memory] < *frames {
                list.pages[memory] += 1;
            } else if list.done[memory] > 0 {
                list.done[memory] -= 1;
            } else {
                list.next_uses.take_last(memory);
            }
        }
        if one.next == NEVER {
            list.done.iter_mut().for_each(|done| *done += 1);
        } else {
            list.next_uses.insert(one.next);
        }
    }
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> SpillError {
    move |source| SpillError { operation, source }
}

fn seek(mut file: &File, offset: u64) -> Result<(), SpillError> {
    file.seek(SeekFrom::Start(offset)).map(drop).map_err(failed("seek in the spill file"))
}
