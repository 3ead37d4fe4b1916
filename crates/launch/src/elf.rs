//! What an ELF file says about itself: enough to know whether the library can be loaded into it.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Facts of one ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// 64-bit, little-endian.
    pub is_64_bit: bool,
    /// `e_machine`.
    pub machine: u16,
    /// The dynamic loader (PT_INTERP); None: static, or a library.
    pub interpreter: Option<String>,
    /// It has a dynamic section (a static PIE has one without an interpreter).
    pub dynamic: bool,
    /// Made by the Go tool chain.
    pub is_go: bool,
    /// Libraries it names (DT_NEEDED).
    pub needed: Vec<String>,
}

/// `e_machine` of x86-64 and of AArch64.
pub const X86_64: u16 = 62;
/// See [`X86_64`].
pub const AARCH64: u16 = 183;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// No real file has more than a few dozen program headers, or a section table or strings of more than this.
const TABLE_LIMIT: u64 = 16 << 20;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn read(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length.min(TABLE_LIMIT)).ok()?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn string_at(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
}

/// Reads the facts; None when the file is not an ELF file or is damaged.
pub fn inspect(file: &File) -> Option<Elf> {
    let header = read(file, 0, 64).or_else(|| read(file, 0, 52))?;
    if header.get(..4) != Some(b"\x7fELF") {
        return None;
    }
    let is_64_bit = header.get(4..6) == Some(&[2, 1]);
    let machine = u16_at(&header, 18)?;
    let mut elf = Elf { is_64_bit, machine, interpreter: None, dynamic: false, is_go: false, needed: Vec::new() };
    if !is_64_bit {
        return Some(elf);
    }
    let segments = segments(file, &header)?;
    for segment in &segments {
        match segment.kind {
            PT_INTERP => elf.interpreter = string_at(&read(file, segment.offset, segment.file_bytes)?, 0),
            PT_NOTE => elf.is_go |= has_go_note(&read(file, segment.offset, segment.file_bytes)?),
            PT_DYNAMIC => {
                elf.dynamic = true;
                elf.needed = needed(file, segment, &segments).unwrap_or_default();
            }
            _ => {}
        }
    }
    // With external linking the note may be missing or merged; the section stays even in stripped binaries.
    elf.is_go |= section_names(file, &header).is_some_and(|names| names.iter().any(|name| name == ".go.buildinfo"));
    Some(elf)
}

fn segments(file: &File, header: &[u8]) -> Option<Vec<Segment>> {
    let (offset, entry, count) = (u64_at(header, 32)?, u16_at(header, 54)? as usize, u16_at(header, 56)? as usize);
    if entry < 56 {
        return None;
    }
    let table = read(file, offset, (entry * count) as u64)?;
    table
        .chunks_exact(entry)
        .map(|raw| {
            Some(Segment {
                kind: u32_at(raw, 0)?,
                offset: u64_at(raw, 8)?,
                address: u64_at(raw, 16)?,
                file_bytes: u64_at(raw, 32)?,
            })
        })
        .collect()
}

/// Notes are name length, description length, type, then name and description padded to four bytes.
fn has_go_note(notes: &[u8]) -> bool {
    let mut at = 0_usize;
    let padded = |length: u32| (length as usize).next_multiple_of(4);
    while let (Some(name), Some(description)) = (u32_at(notes, at), u32_at(notes, at + 4)) {
        if notes.get(at + 12..at + 12 + name as usize).is_some_and(|name| name.starts_with(b"Go\0")) {
            return true;
        }
        match at.checked_add(12 + padded(name) + padded(description)) {
            Some(next) => at = next,
            None => return false,
        }
    }
    false
}

fn needed(file: &File, dynamic: &Segment, segments: &[Segment]) -> Option<Vec<String>> {
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    const DT_STRSZ: u64 = 10;
    let table = read(file, dynamic.offset, dynamic.file_bytes)?;
    let entries: Vec<(u64, u64)> =
        table.chunks_exact(16).filter_map(|raw| Some((u64_at(raw, 0)?, u64_at(raw, 8)?))).collect();
    let value = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let (address, length) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let holder = segments.iter().find(|segment| {
        segment.kind == PT_LOAD && (segment.address..segment.address + segment.file_bytes).contains(&address)
    })?;
    let strings = read(file, address - holder.address + holder.offset, length)?;
    let names = entries.iter().filter(|entry| entry.0 == DT_NEEDED);
    Some(names.filter_map(|entry| string_at(&strings, usize::try_from(entry.1).ok()?)).collect())
}

/// Whether a shared object defines a dynamic symbol of this name.
pub fn exports(file: &File, name: &str) -> bool {
    read(file, 0, 64).and_then(|header| has_symbol(file, &header, name)).unwrap_or(false)
}

fn has_symbol(file: &File, header: &[u8], name: &str) -> Option<bool> {
    const SHT_DYNSYM: u32 = 11;
    const SYMBOL_BYTES: usize = 24;
    let (offset, entry, count) = (u64_at(header, 40)?, u16_at(header, 58)? as usize, u16_at(header, 60)? as usize);
    if entry < 64 {
        return None;
    }
    let table = read(file, offset, (entry * count) as u64)?;
    let section = |index: usize| table.get(index * entry..(index + 1) * entry);
    let found = (0..count).filter_map(section).find(|raw| u32_at(raw, 4) == Some(SHT_DYNSYM))?;
    let content = |raw: &[u8]| read(file, u64_at(raw, 24)?, u64_at(raw, 32)?);
    let (symbols, strings) = (content(found)?, content(section(u32_at(found, 40)? as usize)?)?);
    let defines = |raw: &[u8]| {
        const SHN_UNDEF: u16 = 0;
        let known = string_at(&strings, u32_at(raw, 0)? as usize)?;
        Some(known == name && u16_at(raw, 6)? != SHN_UNDEF)
    };
    Some(symbols.chunks_exact(SYMBOL_BYTES).any(|raw| defines(raw) == Some(true)))
}

fn section_names(file: &File, header: &[u8]) -> Option<Vec<String>> {
    let (offset, entry, count) = (u64_at(header, 40)?, u16_at(header, 58)? as usize, u16_at(header, 60)? as usize);
    let names_index = u16_at(header, 62)? as usize;
    if entry < 64 || count == 0 {
        return None;
    }
    let table = read(file, offset, (entry * count) as u64)?;
    let section = |index: usize| table.get(index * entry..(index + 1) * entry);
    let names = section(names_index)?;
    let strings = read(file, u64_at(names, 24)?, u64_at(names, 32)?)?;
    Some((0..count).filter_map(|index| string_at(&strings, u32_at(section(index)?, 0)? as usize)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_is_dynamic_and_not_go() {
        let elf = inspect(&File::open("/proc/self/exe").expect("own file")).expect("ELF");
        assert!(elf.is_64_bit && elf.dynamic && !elf.is_go);
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", elf.needed);
    }

    #[test]
    fn libc_defines_malloc_and_this_program_does_not_export_it() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("libc");
        let libc = File::open(libc).expect("libc");
        assert!(exports(&libc, "malloc") && !exports(&libc, "pagelab_strategy"));
        assert!(!exports(&File::open("/proc/self/exe").expect("own file"), "malloc"), "undefined here");
        assert!(!exports(&File::open("/proc/self/status").expect("status"), "malloc"));
    }

    #[test]
    fn text_is_not_elf() {
        assert_eq!(inspect(&File::open("/proc/self/status").expect("status")), None);
    }

    #[test]
    fn a_note_with_an_absurd_length_ends_the_search() {
        assert!(!has_go_note(&[0xff; 24]));
        assert!(has_go_note(b"\x04\0\0\0\x01\0\0\0\x04\0\0\0Go\0\0x\0\0\0"));
    }
}
