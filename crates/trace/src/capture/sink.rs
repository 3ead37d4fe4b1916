//! Blocks of many process images, as one trace.

use super::packed;
use super::protocol::{BlockKind, End, Hello, Segment};
use crate::error::TraceError;
use crate::format::{Content, TraceWriter};
use crate::reference::Reference;
use crate::run::{MAX_ASID, NUMBER_BITS, Run, RunBuilder};
use crate::source::Result;
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;

/// A process image: from its first reference to its exec or its end. Each has an address space of its own in the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// The program with its arguments.
    pub command: Vec<String>,
    /// References of it in the trace.
    pub references: u64,
    /// Threads that have references.
    pub threads: u32,
    /// Instructions executed; null where they were not counted.
    pub instructions: Option<u64>,
    /// How it ended: "exit", "exec", or "killed": then its last references are missing.
    pub ended: &'static str,
}

/// Contents of a captured trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// References; of page runs, the sum of their counts.
    pub references: u64,
    /// Records: references, or runs.
    pub records: u64,
    /// References that load, store, fetch; null for page runs, which do not keep the kind.
    pub kinds: Option<[u64; 4]>,
    /// Process images, by address space.
    pub images: Vec<Image>,
    /// Processes that were not followed.
    pub notes: Vec<String>,
}

/// A block as received.
pub(super) struct Block {
    /// The connection.
    pub connection: u64,
    pub kind: Option<BlockKind>,
    pub payload: Vec<u8>,
}

/// Writes blocks.
pub(super) struct Sink<W: Write> {
    writer: TraceWriter<W>,
    content: Content,
    builder: RunBuilder,
    runs: Vec<Run>,
    references: Vec<Reference>,
    /// Address space of a connection.
    spaces: HashMap<u64, u16>,
    /// Address space of an image.
    tokens: HashMap<u64, u16>,
    totals: Totals,
}

impl<W: Write> Sink<W> {
    pub fn new(writer: TraceWriter<W>, content: Content) -> Self {
        let kinds = (content == Content::References).then_some([0; 4]);
        Sink {
            writer,
            content,
            builder: RunBuilder::default(),
            runs: Vec::new(),
            references: Vec::new(),
            spaces: HashMap::new(),
            tokens: HashMap::new(),
            totals: Totals { kinds, ..Totals::default() },
        }
    }

    pub fn take(&mut self, block: &Block) -> Result<()> {
        match block.kind {
            Some(BlockKind::Hello) => self.hello(block),
            Some(BlockKind::References) => self.references(block),
            Some(BlockKind::Runs) => self.runs(block),
            Some(BlockKind::Note) => {
                let text = String::from_utf8_lossy(&block.payload).into_owned();
                if !self.totals.notes.contains(&text) {
                    self.totals.notes.push(text);
                }
                Ok(())
            }
            Some(BlockKind::End) => {
                let end = End::decode(&block.payload).ok_or_else(malformed)?;
                if let Some(image) = self.image(block) {
                    image.ended = if end.replaced == 1 { "exec" } else { "exit" };
                    image.instructions = (end.instructions > 0).then_some(end.instructions);
                }
                Ok(())
            }
            None => Err(malformed()),
        }
    }

    /// The end of everything: the writer, and what was written.
    pub fn finish(mut self) -> Result<(TraceWriter<W>, Totals)> {
        if let Content::Runs { .. } = self.content {
            self.runs.clear();
            self.builder.finish(&mut self.runs);
            self.writer.runs(&self.runs)?;
        }
        self.totals.records = self.writer.records();
        Ok((self.writer, self.totals))
    }

    fn hello(&mut self, block: &Block) -> Result<()> {
        let hello = Hello::decode(&block.payload).ok_or_else(malformed)?;
        let known = self.tokens.len() as u16;
        let space = *self.tokens.entry(hello.image).or_insert(known);
        if space > MAX_ASID {
            let most = u32::from(MAX_ASID) + 1;
            return Err(TraceError::Invalid(format!(
                "more than {most} programs were started: trace one of them, or --no-children"
            )));
        }
        self.spaces.insert(block.connection, space);
        if usize::from(space) == self.totals.images.len() {
            self.totals.images.push(Image {
                pid: hello.pid,
                parent: hello.parent,
                command: command(&block.payload[super::protocol::HELLO_BYTES..]),
                references: 0,
                threads: 0,
                instructions: None,
                ended: "killed",
            });
        }
        Ok(())
    }

    fn image(&mut self, block: &Block) -> Option<&mut Image> {
        let space = *self.spaces.get(&block.connection)?;
        self.totals.images.get_mut(usize::from(space))
    }

    /// Counts references of a thread of an address space.
    fn count(&mut self, space: u16, thread: u32, references: u64) {
        let image = &mut self.totals.images[usize::from(space)];
        image.references += references;
        image.threads = image.threads.max(thread + 1);
        self.totals.references += references;
    }

    fn references(&mut self, block: &Block) -> Result<()> {
        let space = *self.spaces.get(&block.connection).ok_or_else(malformed)?;
        let mut rest = &block.payload[..];
        while !rest.is_empty() {
            let (segment, words, behind) = Segment::split(rest).ok_or_else(malformed)?;
            rest = behind;
            self.references.clear();
            self.references.extend(words.chunks_exact(8).map(|word| Reference::from_bits(word_of(word))));
            if let Some(kinds) = &mut self.totals.kinds {
                self.references.iter().for_each(|reference| kinds[reference.kind() as usize] += 1);
            }
            self.count(space, segment.thread, self.references.len() as u64);
            self.writer.references(space, segment.thread, &self.references)?;
        }
        Ok(())
    }

    fn runs(&mut self, block: &Block) -> Result<()> {
        let space = *self.spaces.get(&block.connection).ok_or_else(malformed)?;
        let mut rest = &block.payload[..];
        while !rest.is_empty() {
            let (segment, words, behind) = Segment::split(rest).ok_or_else(malformed)?;
            rest = behind;
            let mut references = 0;
            self.runs.clear();
            for (page, count) in words.chunks_exact(8).map(|word| packed::run_of(word_of(word))) {
                references += count;
                self.builder.push(page | u64::from(space) << NUMBER_BITS, count, &mut self.runs);
            }
            self.count(space, segment.thread, references);
            self.writer.runs(&self.runs)?;
        }
        Ok(())
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

fn malformed() -> TraceError {
    TraceError::Invalid(
        "the plugin sent what the collector does not understand: they are of different versions".into(),
    )
}

/// The program's own command line, behind the emulator's `-0 NAME PROGRAM`.
fn command(line: &[u8]) -> Vec<String> {
    let words: Vec<_> =
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let own = words.iter().position(|word| word == "-0").map_or(0, |at| at + 1);
    let rest = words.iter().skip(own + 2).filter(|_| own + 2 <= words.len());
    let mut command: Vec<String> = words.get(own).into_iter().chain(rest).cloned().collect();
    if command.last().is_some_and(String::is_empty) {
        command.pop();
    }
    command
}
