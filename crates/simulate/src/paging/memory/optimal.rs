//! OPT (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966): the
//! page whose next use lies farthest ahead leaves. What lies ahead is known after a first pass that spills to disk.

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use super::super::Touch;
use super::super::colouring::{Chain, Colouring, ColouringError};
use super::Size;
use crate::pages::{Id, Pages};
use spill::Spill;

mod spill;

/// References held in memory at a time.
const BLOCK: usize = 1 << 16;
const ABSENT: u64 = u64::MAX;
/// The next use of a page that is not used again.
const NEVER: u64 = u64::MAX - 1;

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

    /// Walks back over the uses, then forward: faults of each memory. `file`: another one, for 8 bytes a change of page.
    ///
    /// # Errors
    /// A disk that refused, now or while fed.
    pub fn faults(&mut self, file: File) -> Result<Vec<(Size, u64)>, SpillError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.uses.flush()?;
        let next_uses = self.next_uses(file)?;
        let mut memories: Vec<(Chain, Size, Memory)> = self
            .memories
            .iter()
            .map(|(size, chain)| (chain.clone(), *size, Memory::new(chain, size.frames, self.pages.len())))
            .collect();
        let (mut ids, mut nexts) = (Vec::new(), Vec::new());
        for block in 0..self.uses.blocks() {
            self.uses.read(block, &mut ids)?;
            next_uses.read(block, &mut nexts)?;
            for (chain, _, memory) in &mut memories {
                for (id, next) in ids.iter().zip(&nexts) {
                    let id = Id::from_le_bytes(*id);
                    memory.touch(id, u64::from_le_bytes(*next), chain.code(self.pages.page(id)) as usize);
                }
            }
        }
        Ok(memories.into_iter().map(|(_, size, memory)| (size, memory.faults)).collect())
    }

    fn next_uses(&self, file: File) -> Result<Spill<8>, SpillError> {
        let mut next_uses = Spill::<8>::new(file);
        let mut seen = vec![NEVER; self.pages.len()];
        let mut ids = Vec::new();
        for block in (0..self.uses.blocks()).rev() {
            self.uses.read(block, &mut ids)?;
            let first = block * BLOCK as u64;
            let mut nexts = vec![[0; 8]; ids.len()];
            for (i, id) in ids.iter().enumerate().rev() {
                let id = Id::from_le_bytes(*id) as usize;
                nexts[i] = seen[id].to_le_bytes();
                seen[id] = first + i as u64;
            }
            next_uses.write(block, &nexts)?;
        }
        Ok(next_uses)
    }
}

#[derive(Debug)]
struct Memory {
    frames: u32,
    /// The next use of each page in memory.
    next: Vec<u64>,
    lists: Vec<List>,
    faults: u64,
}

/// Pages by their next use; entries that a later use has made stale stay until they surface or are too many.
#[derive(Debug, Default)]
struct List {
    heap: BinaryHeap<(u64, Id)>,
    pages: u32,
}

impl Memory {
    fn new(chain: &Chain, frames: u32, pages: usize) -> Self {
        let lists = (0..1 << chain.code_bits()).map(|_| List::default()).collect();
        Self { frames, next: vec![ABSENT; pages], lists, faults: 0 }
    }

    fn touch(&mut self, id: Id, next: u64, list: usize) {
        let list = &mut self.lists[list];
        if self.next[id as usize] == ABSENT {
            self.faults += 1;
            if list.pages == self.frames {
                list.evict(&mut self.next);
            } else {
                list.pages += 1;
            }
        }
        self.next[id as usize] = next;
        list.heap.push((next, id));
        if list.heap.len() > 2 * self.frames as usize + 64 {
            list.heap.retain(|&(next, id)| self.next[id as usize] == next);
        }
    }
}

impl List {
    fn evict(&mut self, next: &mut [u64]) {
        while let Some((use_, id)) = self.heap.pop() {
            if next[id as usize] == use_ {
                next[id as usize] = ABSENT;
                return;
            }
        }
    }
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> SpillError {
    move |source| SpillError { operation, source }
}

fn seek(mut file: &File, offset: u64) -> Result<(), SpillError> {
    file.seek(SeekFrom::Start(offset)).map(drop).map_err(failed("seek in the spill file"))
}
