//! Blocks of many process images, as one trace.

use super::protocol::{BlockKind, End, Hello, RunSegment, Segment};
use crate::error::TraceError;
use crate::format::{CodedRuns, Content, TraceWriter};
use crate::reference::Reference;
use crate::run::{MAX_ASID, NUMBER_BITS, Run, RunBuilder};
use crate::source::Result;
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;

/// A process image: from its first instruction, or its fork, to its exec or its end. Each has an address space of its own in the trace.
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
pub(super) struct Block<'a> {
    /// The connection.
    pub connection: u64,
    pub kind: Option<BlockKind>,
    pub payload: &'a [u8],
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
    /// To be called when the first process is there.
    begun: Option<Begun>,
}

/// What is done once, when there is something to capture.
pub(crate) type Begun = Box<dyn FnOnce() -> Result<()> + Send>;

impl<W: Write> Sink<W> {
    pub fn new(writer: TraceWriter<W>, content: Content, begun: Begun) -> Self {
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
            begun: Some(begun),
        }
    }

    pub fn take(&mut self, block: &Block) -> Result<()> {
        match block.kind {
            Some(BlockKind::Hello) => self.hello(block),
            Some(BlockKind::References) => self.references(block),
            Some(BlockKind::Runs) => self.runs(block),
            Some(BlockKind::Note) => {
                let text = String::from_utf8_lossy(block.payload).into_owned();
                if !self.totals.notes.contains(&text) {
                    self.totals.notes.push(text);
                }
                Ok(())
            }
            Some(BlockKind::End) => {
                let end = End::decode(block.payload).ok_or_else(malformed)?;
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
        let hello = Hello::decode(block.payload).ok_or_else(malformed)?;
        if let Some(begun) = self.begun.take() {
            begun()?;
        }
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
        let mut rest = block.payload;
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
        let mut rest = block.payload;
        while !rest.is_empty() {
            let (segment, pages, counts, behind) = RunSegment::split(rest).ok_or_else(malformed)?;
            rest = behind;
            self.segment(space, &segment, pages, counts)?;
        }
        Ok(())
    }

    /// Writes the runs of a segment: the first may continue the run before, the last may be continued by the run
    /// behind.
    fn segment(&mut self, space: u16, segment: &RunSegment, pages: &[u8], counts: &[u8]) -> Result<()> {
        let RunSegment { thread, records, references, first, last, before_last, .. } = *segment;
        let in_space = |page: u64| page | u64::from(space) << NUMBER_BITS;
        self.count(space, thread, references + first.count + last.count);
        self.runs.clear();
        self.builder.push(in_space(first.page), first.count, &mut self.runs);
        if last.count == 0 {
            return self.writer.runs(&self.runs);
        }
        self.builder.finish(&mut self.runs);
        let last_page = in_space(before_last);
        let coded = CodedRuns { pages, counts, last: last_page, records: records as usize, references };
        self.writer.coded_runs(&self.runs, &coded)?;
        self.runs.clear();
        self.builder.push(in_space(last.page), last.count, &mut self.runs);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::packed::Packer;
    use crate::format::{Header, Settings, TraceReader};
    use crate::source::RunSource;
    use proptest::prelude::*;
    use std::io::Cursor;

    const PAGE_BITS: u32 = 12;
    const CONTENT: Content = Content::Runs { page_bits: PAGE_BITS };

    /// What two process images sent: of each segment the image, and the addresses in the pieces that were packed.
    type Sent = Vec<(u64, Vec<Vec<u64>>)>;

    fn naive(sent: &Sent) -> Vec<Run> {
        let (mut runs, mut builder) = (Vec::new(), RunBuilder::default());
        for (image, pieces) in sent {
            for address in pieces.iter().flatten() {
                builder.push(address >> PAGE_BITS | image << NUMBER_BITS, 1, &mut runs);
            }
        }
        builder.finish(&mut runs);
        runs
    }

    fn written(sent: &Sent, chunk_records: usize) -> (Vec<Run>, Totals) {
        let settings = Settings { chunk_records, ..Settings::default() };
        let writer = TraceWriter::new(Vec::new(), &Header::new(CONTENT), settings).unwrap();
        let (mut sink, mut packer) = (Sink::new(writer, CONTENT, Box::new(|| Ok(()))), Packer::new());
        for image in 0..2 {
            let payload = Hello { image, pid: 1, parent: 0 }.encode();
            sink.take(&Block { connection: image, kind: Some(BlockKind::Hello), payload: &payload }).unwrap();
        }
        for (image, pieces) in sent {
            let mut payload = Vec::new();
            pieces.iter().for_each(|piece| packer.add(piece, PAGE_BITS));
            packer.finish(3, &mut payload);
            sink.take(&Block { connection: *image, kind: Some(BlockKind::Runs), payload: &payload }).unwrap();
        }
        let (writer, totals) = sink.finish().unwrap();
        let bytes = writer.finish(&serde_json::Value::Null).unwrap();
        let mut reader =
            TraceReader::new(Cursor::new(bytes)).unwrap().into_runs(PAGE_BITS, crate::Kinds::ALL).unwrap();
        let mut runs = Vec::new();
        while let Some(batch) = reader.next_runs().unwrap() {
            runs.extend_from_slice(batch);
        }
        (runs, totals)
    }

    /// The highest address that a trace holds is among those of page 0.
    fn addresses() -> impl Strategy<Value = Vec<u64>> {
        let steps = prop::collection::vec((0..4_u64, 0..9_u32, 1..300_usize), 0..12);
        steps.prop_map(|steps| {
            let run = |(page, shift, times)| {
                std::iter::repeat_n(((1 << 56) - 1) - (page << (PAGE_BITS + shift * 4)), times)
            };
            steps.into_iter().flat_map(run).collect()
        })
    }

    proptest! {
        #[test]
        fn runs_come_back_whole(
            sent in prop::collection::vec((0..2_u64, prop::collection::vec(addresses(), 0..4)), 0..12),
            chunk_records in 60..300_usize,
        ) {
            let (runs, totals) = written(&sent, chunk_records);
            prop_assert_eq!(&runs, &naive(&sent));
            prop_assert_eq!(totals.records, runs.len() as u64);
            for image in 0..2 {
                let of_image = sent.iter().filter(|(whose, _)| *whose == image);
                let count: usize = of_image.flat_map(|(_, pieces)| pieces).map(Vec::len).sum();
                prop_assert_eq!(totals.images[image as usize].references, count as u64);
            }
        }
    }

    #[test]
    fn long_runs_are_one_over_many_segments() {
        let sent: Sent = (0..5).map(|_| (0, vec![vec![0x1234; 8191]])).collect();
        assert_eq!(written(&sent, 60).0, [Run { page: 1, count: 5 * 8191 }]);
    }
}
