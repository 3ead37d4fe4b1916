//! Facts from an ELF file: enough to know whether the library can be loaded into it.

use object::elf::{
    DT_NEEDED, DT_STRSZ, DT_STRTAB, FileHeader32, FileHeader64, ProgramHeader64, SHT_DYNSYM, SHT_SYMTAB,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::read::{FileKind, ReadCache, ReadRef, StringTable};
use object::{Endianness, LittleEndian};
use std::fs::File;
use std::ops::Range;

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

/// Libraries with LeakSanitizer's runtime, of gcc and of clang.
const LEAK_LIBRARIES: [&str; 5] =
    ["liblsan.so", "libasan.so", "libhwasan.so", "libclang_rt.asan", "libclang_rt.hwasan"];

/// Whether a symbol shows LeakSanitizer's runtime in a program: a function of the runtime, or the one that it asks for
/// (as the library's `looks_for_leaks`).
fn is_leak_runtime(name: &[u8], is_defined: bool) -> bool {
    match name {
        b"__lsan_init" | b"__lsan_do_leak_check" => is_defined,
        b"__lsan_is_turned_off" => true,
        _ => false,
    }
}

/// No real file has a table or strings of more than this.
const TABLE_LIMIT: u64 = 16 << 20;

/// A file, read in pieces of at most [`TABLE_LIMIT`] bytes.
#[derive(Clone, Copy)]
struct Tables<'a>(&'a ReadCache<&'a File>);

impl<'a> ReadRef<'a> for Tables<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > TABLE_LIMIT { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads the facts; None when the file is not an ELF file or is damaged.
pub fn inspect(file: &File) -> Option<Elf> {
    let cache = ReadCache::new(file);
    let data = Tables(&cache);
    let elf = |is_64_bit, machine| Elf {
        is_64_bit,
        machine,
        interpreter: None,
        dynamic: false,
        is_go: false,
        needed: Vec::new(),
    };
    match FileKind::parse(data).ok()? {
        FileKind::Elf32 => {
            let header = FileHeader32::<Endianness>::parse(data).ok()?;
            Some(elf(false, header.e_machine(header.endian().ok()?)))
        }
        FileKind::Elf64 => {
            let header = FileHeader64::<Endianness>::parse(data).ok()?;
            let machine = header.e_machine(header.endian().ok()?);
            match FileHeader64::<LittleEndian>::parse(data) {
                Ok(header) => read(header, data, elf(true, machine)),
                Err(_) => Some(elf(false, machine)),
            }
        }
        _ => None,
    }
}

fn read(header: &FileHeader64<LittleEndian>, data: Tables<'_>, mut elf: Elf) -> Option<Elf> {
    let endian = LittleEndian;
    let segments = header.program_headers(endian, data).ok()?;
    if segments.is_empty() {
        // To be linked, not to be loaded.
        return None;
    }
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, data).ok()? {
            elf.interpreter = Some(string(path));
        }
        if let Some(mut notes) = segment.notes(endian, data).ok().flatten() {
            while let Ok(Some(note)) = notes.next() {
                elf.is_go |= note.name() == b"Go";
            }
        }
        if let Some(entries) = segment.dynamic(endian, data).ok()? {
            elf.dynamic = true;
            elf.needed = needed(entries, segments, data).unwrap_or_default();
        }
    }
    // With external linking the note may be missing or merged; the section stays even in stripped binaries.
    let sections = header.sections(endian, data);
    elf.is_go |= sections.is_ok_and(|all| all.section_by_name(endian, b".go.buildinfo").is_some());
    Some(elf)
}

fn needed(
    entries: &[object::elf::Dyn64<LittleEndian>],
    segments: &[ProgramHeader64<LittleEndian>],
    data: Tables<'_>,
) -> Option<Vec<String>> {
    let endian = LittleEndian;
    let value = |tag| entries.iter().find(|entry| entry.d_tag(endian) == tag).map(|entry| entry.d_val(endian));
    let (address, length) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let offset = segments.iter().find_map(|segment| {
        let into = address.checked_sub(segment.p_vaddr(endian))?;
        let loaded = segment.p_type(endian) == object::elf::PT_LOAD && into < segment.p_filesz(endian);
        loaded.then(|| segment.p_offset(endian).checked_add(into)).flatten()
    })?;
    let strings = StringTable::new(data, offset, offset.checked_add(length)?);
    let names = entries.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED);
    Some(names.filter_map(|entry| entry.string(endian, strings).ok()).map(string).collect())
}

/// Whether a program has LeakSanitizer, which traces it at its end: by a library, or in itself. (Every symbol may be read.)
pub fn looks_for_leaks(file: &File, elf: &Elf) -> bool {
    let cache = ReadCache::new(file);
    // A static program has no other table, and a dynamic one need not keep it.
    let table = if elf.interpreter.is_some() { SHT_DYNSYM } else { SHT_SYMTAB };
    elf.needed.iter().any(|name| LEAK_LIBRARIES.iter().any(|known| name.starts_with(known)))
        || has_symbol(Tables(&cache), table, is_leak_runtime).unwrap_or(false)
}

/// Whether a shared object defines a dynamic symbol of this name.
pub fn exports(file: &File, name: &str) -> bool {
    let cache = ReadCache::new(file);
    let is_it = |symbol: &[u8], is_defined: bool| is_defined && symbol == name.as_bytes();
    has_symbol(Tables(&cache), SHT_DYNSYM, is_it).unwrap_or(false)
}

/// Whether a table of symbols has one that is looked for, by its name and whether it is defined.
fn has_symbol(data: Tables<'_>, table: u32, is_it: impl Fn(&[u8], bool) -> bool) -> Option<bool> {
    let endian = LittleEndian;
    let sections = FileHeader64::parse(data).ok()?.sections(endian, data).ok()?;
    let table = sections.symbols(endian, data, table).ok()?;
    let is_it = |symbol: &object::elf::Sym64<LittleEndian>| {
        symbol.name(endian, table.strings()).is_ok_and(|name| is_it(name, !symbol.is_undefined(endian)))
    };
    Some(table.iter().any(is_it))
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

    /// Compiles a C program that does nothing, and inspects it; None: this machine's compiler cannot make such a one.
    fn compiled(options: &[&str]) -> Option<(Elf, bool)> {
        let random = u64::from_ne_bytes(crate::sys::random().expect("random"));
        let source = std::env::temp_dir().join(format!("elf-{random:016x}.c"));
        let program = source.with_extension("");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
        let made = std::process::Command::new("cc").args(options).arg(&source).arg("-o").arg(&program).output();
        let found = |file: File| {
            let elf = inspect(&file).expect("ELF");
            let leaks = looks_for_leaks(&file, &elf);
            (elf, leaks)
        };
        let elf = File::open(&program).ok().map(found);
        let _ = (std::fs::remove_file(&source), std::fs::remove_file(&program));
        made.is_ok_and(|made| made.status.success()).then_some(elf).flatten()
    }

    #[test]
    fn programs_that_look_for_leaks_are_known_however_they_are_linked() {
        assert!(!compiled(&[]).expect("a C compiler").1);
        assert!(!compiled(&["-static"]).expect("a static libc").1);
        assert!(compiled(&["-fsanitize=address"]).expect("libasan").1);
        assert!(compiled(&["-fsanitize=leak"]).expect("liblsan").1);
        for options in [["-fsanitize=address", "-static-libasan"], ["-fsanitize=leak", "-static-liblsan"]] {
            let (elf, leaks) = compiled(&options).expect("a static runtime");
            assert!(leaks && !elf.needed.iter().any(|name| name.contains("san.so")), "{elf:?}");
        }
        assert!(!compiled(&["-fsanitize=undefined"]).expect("libubsan").1);
    }

    #[test]
    fn symbols_of_the_leak_runtime_count_where_it_defines_them() {
        assert!(is_leak_runtime(b"__lsan_init", true) && !is_leak_runtime(b"__lsan_init", false));
        assert!(
            is_leak_runtime(b"__lsan_is_turned_off", false) && !is_leak_runtime(b"__lsan_ignore_object", false)
        );
    }

    #[test]
    fn text_is_not_elf() {
        assert_eq!(inspect(&File::open("/proc/self/status").expect("status")), None);
    }

    /// A program of one segment: its notes.
    fn with_notes(notes: &[u8]) -> Option<Elf> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        let word = |value: u64| value.to_le_bytes();
        bytes.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        bytes.extend([word(0), word(64), word(0)].concat());
        bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        bytes.extend([4, 0, 0, 0, 4, 0, 0, 0]);
        let size = notes.len() as u64;
        bytes.extend([word(120), word(0), word(0), word(size), word(size), word(4)].concat());
        bytes.extend(notes);
        let random = u64::from_ne_bytes(crate::sys::random().expect("random"));
        let path = std::env::temp_dir().join(format!("notes-{random:016x}"));
        std::fs::write(&path, bytes).expect("written");
        let elf = inspect(&File::open(&path).expect("there"));
        std::fs::remove_file(path).expect("removed");
        elf
    }

    #[test]
    fn a_note_with_an_absurd_length_ends_the_search() {
        assert!(!with_notes(&[0xff; 24]).expect("ELF").is_go);
        assert!(with_notes(b"\x04\0\0\0\0\0\0\0\x04\0\0\0Go\0\0").expect("ELF").is_go);
        assert!(with_notes(b"\x04\0\0\0\x01\0\0\0\x04\0\0\0Go\0\0x\0\0\0").expect("ELF").is_go);
        assert!(!with_notes(b"\x04\0\0\0\x01\0\0\0\x04\0\0\0GNU\0x\0\0\0").expect("ELF").is_go);
    }
}
