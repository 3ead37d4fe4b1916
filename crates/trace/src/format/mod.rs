//! The trace file: header, compressed chunks with checksums, index. `docs/trace.md` has its bytes.

mod codec;
mod header;
mod index;
mod layout;
mod level;
mod reader;
mod run_code;
mod writer;

pub(crate) use codec::zigzag;
pub use header::{Content, Header, Reduction, Sampling};
pub use index::{Entry, Index};
pub(crate) use level::Level;
pub use reader::{Chunk, FileReferences, Selection, TraceReader};
pub(crate) use run_code::{CodedRuns, RunCode};
pub use writer::{Settings, TraceWriter};
