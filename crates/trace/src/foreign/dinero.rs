//! Dinero's input: label, hexadecimal address, and in the extended form of Dinero IV a hexadecimal size.
//!
//! Labels: 0 or r read, 1 or w write, 2 or i instruction, 3 or m other; 4 (c, v, f: cache operations) is no reference.

use super::lines::{Batch, Flaw, hexadecimal, words};
use crate::reference::Kind;

pub(super) fn parse(line: &[u8], batch: &mut Batch) -> Result<(), Flaw> {
    let mut words = words(line);
    let Some(label) = words.next() else { return Ok(()) };
    let kind = match label {
        b"0" | b"r" => Kind::Load,
        b"1" | b"w" => Kind::Store,
        b"2" | b"i" => Kind::Fetch,
        b"3" | b"m" => Kind::Other,
        b"4" | b"c" | b"v" | b"f" => return Ok(()),
        _ => return Err("the label is none of 0 to 4, r, w, i, m, c, v, f".into()),
    };
    let address = words.next().and_then(hexadecimal).ok_or("the address is not hexadecimal")?;
    // Like Dinero, does not read the rest of a line in the traditional form.
    let extended = label[0].is_ascii_alphabetic();
    let size = match words.next().filter(|_| extended) {
        Some(size) => {
            hexadecimal(size).and_then(|size| u32::try_from(size).ok()).ok_or("the size is not hexadecimal")?
        }
        None => 0,
    };
    batch.add(0, 0, address, kind, size)
}
