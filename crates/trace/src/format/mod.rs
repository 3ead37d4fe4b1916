//! The trace file: header, compressed chunks with checksums, index. `docs/trace.md` has its bytes.

mod codec;
mod header;
mod index;
mod layout;
mod reader;
mod writer;

pub use header::{Content, Header, Reduction, Sampling};
pub use index::{Entry, Index};
pub use reader::{Chunk, FileReferences, Selection, TraceReader};
pub use writer::{Settings, TraceWriter};
