//! Symbols of loaded objects, read from their dynamic sections in memory.
//!
//! `dlsym` and `dlopen` may allocate, and need a libc that is ready; `dl_iterate_phdr` does neither. The code calls
//! libc's own `dl_iterate_phdr`. The program may contain another function of this name (ThreadSanitizer's), which may
//! not be ready when the library starts.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::boundary::arch::{self, PAGE};
use crate::boundary::span::{Span, align_down, align_up};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PF_W: u32 = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_VERSYM: usize = 0x6fff_fff0;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const VERSION_HIDDEN: u16 = 0x8000;

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_bytes: usize,
    memory_bytes: usize,
    align: usize,
}

#[repr(C)]
struct Info {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    header_count: u16,
    /// Number of objects ever loaded.
    loads: u64,
}

#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

#[repr(C)]
struct RawSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// Function called with each object; a result other than 0 ends the walk.
type Callback = unsafe extern "C" fn(*mut Info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;

unsafe extern "C" {
    fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
}

/// State that ld.so keeps for debuggers (`struct r_debug`).
#[repr(C)]
struct DebugState {
    version: c_int,
    first: *const LinkMap,
}

/// One loaded object in that state (`struct link_map`).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
}

/// Address of libc's own `dl_iterate_phdr`, after the first search.
static ITERATE: AtomicUsize = AtomicUsize::new(0);

/// Calls libc's `dl_iterate_phdr`.
///
/// # Safety
/// `callback` can be called with `data`.
unsafe fn iterate(callback: Callback, data: *mut c_void) {
    let mut known = ITERATE.load(Ordering::Relaxed);
    if known == 0 {
        let fallback: Iterate = dl_iterate_phdr;
        known = libcs_iterate().unwrap_or(fallback as usize);
        ITERATE.store(known, Ordering::Relaxed);
    }
    // SAFETY: the function of this name has this type in every libc; the caller promises that `callback` takes `data`.
    unsafe { core::mem::transmute::<usize, Iterate>(known)(callback, data) };
}

/// Finds libc's `dl_iterate_phdr` in ld.so's list; none without a list, or with another libc.
fn libcs_iterate() -> Option<usize> {
    // SAFETY: null, or ld.so's own variable, which lives as long as the process; the loader has built the list by now.
    let mut map = unsafe { (arch::debugger_state() as *const DebugState).as_ref() }?.first;
    // SAFETY: null, or an entry of the list, which nobody changes before other code than the loader has run.
    while let Some(entry) = unsafe { map.as_ref() } {
        // SAFETY: the entry's object is loaded; its dynamic section lies where the loader says.
        let object = unsafe { Object::read(entry.base, entry.dynamic) };
        if let Some(libc) = object.filter(|object| object.symbol(c"gnu_get_libc_version").is_some()) {
            return libc.symbol(c"dl_iterate_phdr").map(|symbol| symbol.address);
        }
        map = entry.next;
    }
    None
}

/// Where a symbol lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address.
    pub address: usize,
    /// Its size in bytes, as the object says.
    pub bytes: usize,
}

impl Symbol {
    /// Its code or data.
    ///
    /// # Safety
    /// The object stays loaded and readable as long as the slice is used, and nobody writes to it meanwhile.
    pub unsafe fn contents(&self, at_least: usize) -> &'static [u8] {
        // SAFETY: the caller promises that the object stays; `at_least` widens only within the segment (padding between
        // functions).
        unsafe { core::slice::from_raw_parts(self.address as *const u8, self.bytes.max(at_least)) }
    }
}

/// A loaded object's dynamic section.
#[derive(Clone, Copy)]
pub struct Object {
    base: usize,
    symbols: *const RawSymbol,
    strings: *const c_char,
    hash: *const u32,
    versions: *const u16,
}

struct Search<'a> {
    wanted: &'a dyn Fn(&[u8], &Object) -> bool,
    found: Option<Object>,
}

unsafe extern "C" fn visit(info: *mut Info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid record, which describes the object's program headers, and `data` is the `Search` that
    // `find` passed.
    let (info, headers, search) = unsafe {
        let headers = core::slice::from_raw_parts((*info).headers, usize::from((*info).header_count));
        (&*info, headers, &mut *data.cast::<Search<'_>>())
    };
    let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else { return 0 };
    // SAFETY: the object is loaded, and its dynamic section lies where its header says.
    let object = unsafe { Object::read(info.base, (info.base + dynamic.address) as *const Dynamic) };
    // SAFETY: null, or a terminated string.
    let name = if info.name.is_null() { &[] } else { unsafe { CStr::from_ptr(info.name) }.to_bytes() };
    match object {
        Some(object) if (search.wanted)(name, &object) => {
            search.found = Some(object);
            1
        }
        _ => 0,
    }
}

/// The first loaded object for which `wanted` holds.
pub fn find(wanted: &dyn Fn(&Object) -> bool) -> Option<Object> {
    find_named(&|_, object| wanted(object))
}

/// As [`find`]; `wanted` also gets the path by which the object was loaded (empty for the program).
pub fn find_named(wanted: &dyn Fn(&[u8], &Object) -> bool) -> Option<Object> {
    let mut search = Search { wanted, found: None };
    // SAFETY: `visit` gets back the very `Search` passed here, which outlives the call.
    unsafe { iterate(visit, (&raw mut search).cast()) };
    search.found
}

/// One loadable segment, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// All of it, bss included, in whole pages.
    pub memory: Span,
    /// The part that maps the file, in whole pages.
    pub file: Span,
    /// Writable.
    pub write: bool,
}

struct Walk<'a> {
    visit: &'a mut dyn FnMut(u32, &mut dyn Iterator<Item = Segment>),
    index: u32,
    loads: u64,
}

unsafe extern "C" fn walk(info: *mut Info, bytes: usize, data: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid record, which describes the object's program headers, and `data` is the `Walk` that
    // `each` passed.
    let (info, headers, walk) = unsafe {
        let headers = core::slice::from_raw_parts((*info).headers, usize::from((*info).header_count));
        (&*info, headers, &mut *data.cast::<Walk<'_>>())
    };
    if bytes >= size_of::<Info>() {
        walk.loads = info.loads;
    }
    let pages = |start: usize, len: usize| {
        let start = info.base + start;
        Span::new(align_down(start, PAGE), align_up(start + len, PAGE).unwrap_or(start))
    };
    let mut segments = headers.iter().filter(|header| header.kind == PT_LOAD).map(|header| Segment {
        memory: pages(header.address, header.memory_bytes),
        file: pages(header.address, header.file_bytes),
        write: header.flags & PF_W != 0,
    });
    (walk.visit)(walk.index, &mut segments);
    walk.index += 1;
    0
}

/// Calls `visit` with the number and the segments of every loaded object, in load order. Returns how many objects there
/// are, and how many were ever loaded.
pub fn each(visit: &mut dyn FnMut(u32, &mut dyn Iterator<Item = Segment>)) -> (u32, u64) {
    let mut data = Walk { visit, index: 0, loads: 0 };
    // SAFETY: `walk` gets back the very `Walk` passed here, which outlives the call.
    unsafe { iterate(walk, (&raw mut data).cast()) };
    (data.index, data.loads)
}

fn hash_of(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

impl Object {
    /// # Safety
    /// `dynamic` is the terminated dynamic section of an object loaded at `base`.
    unsafe fn read(base: usize, mut dynamic: *const Dynamic) -> Option<Object> {
        let mut found = [0usize; 4];
        loop {
            // SAFETY: the section ends with a null entry, where the loop stops.
            let entry = unsafe { &*dynamic };
            let slot = match entry.tag {
                0 => break,
                DT_STRTAB => 0,
                DT_SYMTAB => 1,
                DT_GNU_HASH => 2,
                DT_VERSYM => 3,
                _ => 4,
            };
            if let Some(slot) = found.get_mut(slot) {
                *slot = entry.value;
            }
            dynamic = dynamic.wrapping_add(1);
        }
        let [strings, symbols, hash, versions] = found;
        // glibc relocates these values in place; other loaders, and the vDSO, leave offsets.
        let absolute = |value: usize| if value < base { value + base } else { value };
        (strings != 0 && symbols != 0 && hash != 0).then(|| Object {
            base,
            symbols: absolute(symbols) as *const RawSymbol,
            strings: absolute(strings) as *const c_char,
            hash: absolute(hash) as *const u32,
            versions: if versions == 0 { core::ptr::null() } else { absolute(versions) as *const u16 },
        })
    }

    /// Address at which the object is loaded: its first mapping, except for programs with fixed addresses.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The symbol `name` that the object defines, in its default version.
    pub fn symbol(&self, name: &CStr) -> Option<Symbol> {
        let hash = hash_of(name.to_bytes());
        // SAFETY: DT_GNU_HASH has this layout: four words, the filter's 64-bit words, the buckets, the chain.
        unsafe {
            let buckets = *self.hash;
            let first_hashed = *self.hash.add(1);
            let filter_words = *self.hash.add(2);
            let bucket_table = self.hash.add(4 + 2 * filter_words as usize);
            let chain = bucket_table.add(buckets as usize);
            if buckets == 0 {
                return None;
            }
            let mut index = *bucket_table.add((hash % buckets) as usize);
            if index < first_hashed {
                return None;
            }
            loop {
                let link = *chain.add((index - first_hashed) as usize);
                if link | 1 == hash | 1
                    && let Some(symbol) = self.defined(index as usize, name)
                {
                    return Some(symbol);
                }
                if link & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// Whether the object refers to `name` without defining it. (For an object that defines nothing for others the
    /// answer is no, as it is unknown.)
    pub fn refers_to(&self, name: &CStr) -> bool {
        // SAFETY: as in `symbol`; the symbols before the first hashed one are those that the object does not define.
        (1..unsafe { *self.hash.add(1) }).any(|index| unsafe {
            let symbol = &*self.symbols.add(index as usize);
            CStr::from_ptr(self.strings.add(symbol.name as usize)) == name
        })
    }

    /// # Safety
    /// `index` is a number from the hash table's chains.
    unsafe fn defined(&self, index: usize, name: &CStr) -> Option<Symbol> {
        // SAFETY: hashed indexes are valid in the symbol and version tables; a name is an offset into the string table.
        let (symbol, hidden, own) = unsafe {
            let hidden = !self.versions.is_null() && *self.versions.add(index) & VERSION_HIDDEN != 0;
            let symbol = &*self.symbols.add(index);
            (symbol, hidden, CStr::from_ptr(self.strings.add(symbol.name as usize)))
        };
        let matches = symbol.section != 0 && !hidden && own == name;
        matches.then(|| Symbol { address: self.base + symbol.value, bytes: symbol.size })
    }
}

/// The GNU libc of this process.
pub fn glibc() -> Option<Object> {
    find(&|object| object.symbol(c"gnu_get_libc_version").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn munmap(address: *mut c_void, len: usize) -> c_int;
    }

    #[test]
    fn it_finds_what_the_linker_found() {
        let libc = glibc().unwrap();
        let symbol = libc.symbol(c"munmap").unwrap();
        assert_eq!(symbol.address, munmap as *const () as usize);
        assert!(symbol.bytes >= arch::DETOUR_BYTES);
        assert_eq!(libc.symbol(c"no_such_symbol"), None);
    }

    #[test]
    fn libc_is_found_in_the_list_for_debuggers() {
        assert_eq!(libcs_iterate(), Some(dl_iterate_phdr as *const () as usize));
    }

    #[test]
    fn segments_are_found_where_they_are_mapped() {
        let here = segments_are_found_where_they_are_mapped as *const () as usize;
        let (mut holding, mut last) = (0, 0);
        let (objects, loads) = each(&mut |index, segments| {
            last = index;
            let holds = |segment: Segment| (segment.file.start..segment.file.end).contains(&here);
            holding += segments.filter(|segment| holds(*segment)).count();
        });
        assert_eq!((holding, last + 1), (1, objects));
        assert!(loads >= u64::from(objects));
    }

    #[test]
    fn the_entries_of_this_libc_are_as_expected() {
        let libc = glibc().unwrap();
        let code = libc.symbol(c"munmap").unwrap();
        // SAFETY: libc stays loaded, and nobody patches it in tests.
        assert!(arch::wraps_syscall(unsafe { code.contents(0) }, arch::nr::MUNMAP));
        let hook = find(&|object| object.symbol(c"_dl_debug_state").is_some()).unwrap();
        let hook = hook.symbol(c"_dl_debug_state").unwrap();
        // SAFETY: libc stays loaded, and nobody patches it in tests.
        assert!(arch::is_empty_function(unsafe { hook.contents(arch::DETOUR_BYTES) }));
    }
}
