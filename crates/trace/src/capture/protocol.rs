//! The protocol of plugin and collector: one stream socket a process image, blocks in native byte order.

use crate::run::Run;

/// Contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BlockKind {
    /// The first block of a connection: [`Hello`], then the command line of the emulator (NUL after each argument).
    Hello = 1,
    /// Segments of packed references, 8 bytes each: [`Segment`], then its references, and the next.
    References = 2,
    /// Segments of page runs: [`RunSegment`], then its two streams, and the next.
    Runs = 3,
    /// Text for the user: something that was not followed.
    Note = 4,
    /// The image ends as it should, all blocks were sent: [`End`].
    End = 5,
}

impl BlockKind {
    /// The kind with this number.
    pub fn from_code(code: u32) -> Option<BlockKind> {
        use BlockKind::{End, Hello, Note, References, Runs};
        [Hello, References, Runs, Note, End].into_iter().find(|kind| *kind as u32 == code)
    }
}

/// Before each block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BlockHeader {
    /// A [`BlockKind`].
    pub kind: u32,
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// Bytes that follow.
    pub length: u64,
}

/// Version of this protocol; a plugin with another version is refused.
pub const VERSION: u32 = 0x5047_0004;

/// Header of the references that one thread made without references of other threads between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// The thread, numbered from 0 in its process image.
    pub thread: u32,
    /// Words of 8 bytes that follow.
    pub words: u32,
}

/// Bytes of a [`Segment`].
pub const SEGMENT_BYTES: usize = 8;

impl Segment {
    /// As sent.
    pub fn encode(&self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        bytes[..4].copy_from_slice(&self.thread.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.words.to_ne_bytes());
        bytes
    }

    /// The segment at the beginning of `payload` with its words, and what follows; none where it is malformed.
    pub fn split(payload: &[u8]) -> Option<(Segment, &[u8], &[u8])> {
        let (header, rest) = payload.split_at_checked(SEGMENT_BYTES)?;
        let segment = Segment { thread: u32_at(header, 0), words: u32_at(header, 4) };
        let (words, rest) = rest.split_at_checked(segment.words as usize * 8)?;
        Some((segment, words, rest))
    }
}

/// Header of the runs that one thread made without references of other threads between. All runs but the first and the
/// last follow in the file's code: differences of pages, from the first run's on, then counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSegment {
    /// The thread, numbered from 0 in its process image.
    pub thread: u32,
    /// Runs between the first and the last.
    pub records: u32,
    /// Sum of their counts.
    pub references: u64,
    /// The first run.
    pub first: Run,
    /// The last run; where the count is 0 there is only the first.
    pub last: Run,
    /// Page of the run before the last.
    pub before_last: u64,
    /// Bytes of the differences of pages.
    pub pages: u32,
    /// Bytes of the counts.
    pub counts: u32,
}

/// A segment of runs, its two streams, and what follows.
pub type SegmentParts<'a> = (RunSegment, &'a [u8], &'a [u8], &'a [u8]);

/// Bytes of a [`RunSegment`].
pub const RUN_SEGMENT_BYTES: usize = 64;

impl RunSegment {
    /// As sent.
    pub fn encode(&self) -> [u8; RUN_SEGMENT_BYTES] {
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            halves(self.thread, self.records),
            self.references,
            self.first.page,
            self.first.count,
            self.last.page,
            self.last.count,
            self.before_last,
            halves(self.pages, self.counts),
        ];
        let mut bytes = [0; RUN_SEGMENT_BYTES];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(room, word)| room.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// The segment at the beginning of `payload` with its two streams, and what follows; none where it is malformed.
    pub fn split(payload: &[u8]) -> Option<SegmentParts<'_>> {
        let (header, rest) = payload.split_at_checked(RUN_SEGMENT_BYTES)?;
        let word = |at: usize| u64::from_le_bytes(header[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
        let segment = RunSegment {
            thread: word(0) as u32,
            records: (word(0) >> 32) as u32,
            references: word(1),
            first: Run { page: word(2), count: word(3) },
            last: Run { page: word(4), count: word(5) },
            before_last: word(6),
            pages: word(7) as u32,
            counts: (word(7) >> 32) as u32,
        };
        let (pages, rest) = rest.split_at_checked(segment.pages as usize)?;
        let (counts, rest) = rest.split_at_checked(segment.counts as usize)?;
        Some((segment, pages, counts, rest))
    }
}

/// Bytes of a [`BlockHeader`].
pub const HEADER_BYTES: usize = 16;
/// The longest block that a collector accepts.
pub const MOST_BYTES: u64 = 1 << 24;

/// The sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Hello {
    /// The same for all connections of a process image, different for all images: a program that closes all its
    /// descriptors closes the connection too, and the plugin then makes another.
    pub image: u64,
    /// Process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
}

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 16;

/// Facts known at an image's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct End {
    /// 1 where the image was replaced by another (exec), 0 where the process ends.
    pub replaced: u64,
    /// Instructions executed, where they were counted (windows); else 0.
    pub instructions: u64,
}

/// Bytes of an [`End`].
pub const END_BYTES: usize = 16;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl BlockHeader {
    /// As sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.version.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.length.to_ne_bytes());
        bytes
    }

    /// As received.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> BlockHeader {
        BlockHeader { kind: u32_at(bytes, 0), version: u32_at(bytes, 4), length: u64_at(bytes, 8) }
    }
}

impl Hello {
    /// As sent.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&self.image.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.parent.to_ne_bytes());
        bytes
    }

    /// As received; none where it is too short.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        (bytes.len() >= HELLO_BYTES).then(|| Hello {
            image: u64_at(bytes, 0),
            pid: u32_at(bytes, 8),
            parent: u32_at(bytes, 12),
        })
    }
}

impl End {
    /// As sent.
    pub fn encode(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&self.replaced.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.instructions.to_ne_bytes());
        bytes
    }

    /// As received; none where it is too short.
    pub fn decode(bytes: &[u8]) -> Option<End> {
        (bytes.len() >= END_BYTES).then(|| End { replaced: u64_at(bytes, 0), instructions: u64_at(bytes, 8) })
    }
}

/// A program marks where its trace begins and ends by `prctl(MARKER, 1)` and `prctl(MARKER, 0)`: an option unknown to
/// every kernel, so that without a capture it costs only a refused system call (EINVAL).
pub const MARKER: u64 = 0x5047_4c42;
