//! `valgrind --tool=lackey --trace-mem=yes`: `I  04016b80,3`, ` L addr,size`, ` S addr,size`, ` M addr,size`.
//!
//! Everything is thread 0: lackey does not report threads. A modification is a load and a store.

use super::lines::{Batch, Flaw, decimal, hexadecimal};
use crate::reference::Kind;

pub(super) fn parse(line: &[u8], batch: &mut Batch) -> Result<(), Flaw> {
    let (kinds, rest): (&[Kind], _) = match line {
        [b'I', b' ', b' ', rest @ ..] => (&[Kind::Fetch], rest),
        [b' ', b'L', b' ', rest @ ..] => (&[Kind::Load], rest),
        [b' ', b'S', b' ', rest @ ..] => (&[Kind::Store], rest),
        [b' ', b'M', b' ', rest @ ..] => (&[Kind::Load, Kind::Store], rest),
        // Valgrind's own messages, and output of the program between them.
        [b'=' | b'-' | b'*', ..] | [] => return Ok(()),
        _ => return Err("not a line of lackey's".into()),
    };
    let comma = rest.iter().position(|byte| *byte == b',').ok_or("no size")?;
    let address = hexadecimal(&rest[..comma]).ok_or("the address is not hexadecimal")?;
    let size =
        decimal(&rest[comma + 1..]).and_then(|size| u32::try_from(size).ok()).ok_or("the size is no number")?;
    kinds.iter().try_for_each(|kind| batch.add(0, 0, address, *kind, size))
}
