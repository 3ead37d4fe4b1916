//! `/proc/self/maps`, read in pieces and without allocation.

use pagelab_abi::plan::Memory;

use crate::boundary::apart::apart;
use crate::boundary::own::Fresh;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, c};

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its addresses.
    pub span: Span,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub exec: bool,
    /// Shared.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: usize,
    /// Inode; 0: no file.
    pub inode: u64,
    /// Path, or a name in brackets, or nothing.
    pub name: &'a [u8],
}

impl Mapping<'_> {
    /// Its protection, as in mmap's argument.
    pub fn protection(&self) -> i32 {
        let bit = |has, bit| if has { bit } else { 0 };
        bit(self.read, c::PROT_READ) | bit(self.write, c::PROT_WRITE) | bit(self.exec, c::PROT_EXEC)
    }

    /// Whether it is anonymous memory from a pool of reserved pages, which the kernel shows as a file of its own.
    pub fn is_reserved(&self) -> bool {
        self.name.starts_with(b"/anon_hugepage")
    }

    /// Whether a file is mapped.
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }
}

const BUFFER: usize = 16 << 10;

struct Field<'a>(&'a [u8]);

impl<'a> Field<'a> {
    fn word(&mut self) -> &'a [u8] {
        let skip = self.0.iter().take_while(|&&byte| byte == b' ').count();
        let rest = self.0.get(skip..).unwrap_or(&[]);
        let len = rest.iter().take_while(|&&byte| byte != b' ').count();
        let (word, rest) = rest.split_at(len);
        self.0 = rest;
        word
    }
}

fn number(text: &[u8], radix: u64) -> Option<u64> {
    let digit = |byte: u8| char::from(byte).to_digit(radix as u32).map(u64::from);
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| value.checked_mul(radix)?.checked_add(digit(byte)?))
}

/// One line of the file, without its newline.
pub fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let mut fields = Field(line);
    let range = fields.word();
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let start = number(range.get(..dash)?, 16)?;
    let end = number(range.get(dash + 1..)?, 16)?;
    let flags = fields.word();
    let offset = number(fields.word(), 16)?;
    let _device = fields.word();
    let inode = number(fields.word(), 10)?;
    let skip = fields.0.iter().take_while(|&&byte| byte == b' ').count();
    let has = |index: usize, byte: u8| flags.get(index) == Some(&byte);
    Some(Mapping {
        span: Span::new(start as usize, end as usize),
        read: has(0, b'r'),
        write: has(1, b'w'),
        exec: has(2, b'x'),
        shared: has(3, b's'),
        offset: offset as usize,
        inode,
        name: fields.0.get(skip..).unwrap_or(&[]),
    })
}

/// Calls `visit` for every mapping, lowest first, until it returns false.
///
/// The kernel writes whole lines into each read, so a line is never torn. Mappings made meanwhile may or may not
/// appear. `buffer` must hold the longest line (a path of 4096 bytes, and the columns before it).
pub fn each_with(buffer: &mut [u8], visit: &mut dyn FnMut(&Mapping<'_>) -> bool) -> Result<(), Errno> {
    apart(|| read_each(buffer, visit))?
}

fn read_each(buffer: &mut [u8], visit: &mut dyn FnMut(&Mapping<'_>) -> bool) -> Result<(), Errno> {
    let fd = sys::open(c"/proc/self/maps", c::O_RDONLY, 0)?;
    let mut kept = 0;
    let result = loop {
        let used = match sys::read(fd, buffer.get_mut(kept..).unwrap_or(&mut [])) {
            Ok(0) => break Ok(()),
            Ok(used) => kept + used,
            Err(errno) => break Err(errno),
        };
        let mut from = 0;
        let mut go_on = true;
        while let Some(len) = buffer.get(from..used).and_then(|rest| rest.iter().position(|&byte| byte == b'\n')) {
            if let Some(mapping) = buffer.get(from..from + len).and_then(parse) {
                go_on = go_on && visit(&mapping);
            }
            from += len + 1;
        }
        if !go_on {
            break Ok(());
        }
        buffer.copy_within(from..used, 0);
        kept = used - from;
    };
    sys::close(fd);
    result
}

/// As [`each_with`], with its own buffer, which it maps and unmaps again (the caller's stack may be small).
pub fn each(visit: &mut dyn FnMut(&Mapping<'_>) -> bool) -> Result<(), Errno> {
    each_with(Fresh::map(BUFFER)?.into_bytes().all(), visit)
}

/// Kind of a mapping: data or bss of a loaded object, or the stack. `data_end` is where the data before it ended.
pub fn kind_of(mapping: &Mapping<'_>, data_end: usize) -> Option<Memory> {
    if mapping.name == b"[stack]" {
        return Some(Memory::Stack);
    }
    let private = mapping.write && !mapping.shared;
    let bss = mapping.name.is_empty() && !mapping.is_file() && mapping.span.start == data_end;
    (private && (mapping.is_file() || bss)).then_some(Memory::Data)
}

/// Protection of the memory at `addr`; `None`: nothing is mapped there.
pub fn protection(addr: usize) -> Option<i32> {
    let mut found = None;
    let _ = each(&mut |mapping| {
        if mapping.span.start <= addr && addr < mapping.span.end {
            found = Some(mapping.protection());
        }
        mapping.span.end <= addr
    });
    found
}

/// Number of mappings.
pub fn count() -> u32 {
    let mut total = 0;
    let _ = each(&mut |_| {
        total += 1;
        true
    });
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = b"7f12a000-7f12c000 r-xp 0001f000 fe:01 1234                       /lib/with space.so";
        let mapping = parse(line).unwrap();
        assert_eq!(mapping.span, Span::new(0x7f12_a000, 0x7f12_c000));
        assert!(mapping.read && !mapping.write && mapping.exec && !mapping.shared && mapping.is_file());
        assert_eq!((mapping.offset, mapping.inode), (0x1f000, 1234));
        assert_eq!(mapping.name, b"/lib/with space.so");
        let bare = parse(b"00400000-00401000 rw-s 00000000 00:00 0 ").unwrap();
        assert!(bare.shared && bare.name.is_empty() && !bare.is_file());
        assert_eq!(parse(b"rubbish"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn the_own_stack_is_found() {
        let here = 0u8;
        let (mut found, mut ordered, mut last) = (false, true, 0);
        each(&mut |mapping| {
            ordered &= mapping.span.start >= last;
            last = mapping.span.end;
            found |= (mapping.span.start..mapping.span.end).contains(&(&raw const here as usize));
            true
        })
        .unwrap();
        assert!(found && ordered);
        assert!(count() > 5);
    }
}
