//! Event names of libpfm4, where that library is installed (it is loaded at run time, never needed).

use super::role::{Part, Role};
use crate::sys::perf::Code;
use perf_event_open_sys::bindings::perf_event_attr;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

const LIBRARY: &CStr = c"libpfm.so.4";
/// PFM_PLM0 | PFM_PLM3: count in the kernel and in user mode.
const BOTH_LEVELS: c_int = 0x1 | 0x8;

type Initialize = unsafe extern "C" fn() -> c_int;
type Encode =
    unsafe extern "C" fn(*const c_char, c_int, *mut perf_event_attr, *mut *mut c_char, *mut c_int) -> c_int;
type Explain = unsafe extern "C" fn(c_int) -> *const c_char;

struct Library {
    initialize: Initialize,
    encode: Encode,
    explain: Explain,
}

/// A perf_event_attr, and room for what a newer libpfm4 may think belongs to it.
#[repr(C)]
struct Room {
    attr: perf_event_attr,
    _newer: [u64; 64],
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is from dlopen and never closed; the name is NUL-terminated.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn load() -> Option<Library> {
    // SAFETY: the library's constructors have no requirements of their own.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return None;
    }
    let initialize = symbol(handle, c"pfm_initialize")?;
    let encode = symbol(handle, c"pfm_get_perf_event_encoding")?;
    let explain = symbol(handle, c"pfm_strerror")?;
    // SAFETY: the types are those of libpfm4's headers for these names.
    unsafe {
        Some(Library {
            initialize: std::mem::transmute::<*mut c_void, Initialize>(initialize),
            encode: std::mem::transmute::<*mut c_void, Encode>(encode),
            explain: std::mem::transmute::<*mut c_void, Explain>(explain),
        })
    }
}

impl Library {
    fn why(&self, code: c_int) -> String {
        // SAFETY: pfm_strerror returns a pointer to a static string, for any code.
        let text = unsafe { CStr::from_ptr((self.explain)(code)) };
        text.to_string_lossy().into_owned()
    }

    fn encode(&self, name: &str) -> Result<perf_event_attr, String> {
        let c_name = CString::new(name).map_err(|_| "a name with a NUL".to_owned())?;
        // SAFETY: no arguments; may be called more than once.
        let ready = unsafe { (self.initialize)() };
        if ready != 0 {
            return Err(self.why(ready));
        }
        let size = std::mem::size_of::<perf_event_attr>() as u32;
        let mut room = Room { attr: perf_event_attr::default(), _newer: [0; 64] };
        room.attr.size = size;
        // SAFETY: the name is NUL-terminated; libpfm clears and fills a perf_event_attr of its own version, for which
        // there is room; null pointers decline the optional results.
        let done = unsafe {
            (self.encode)(
                c_name.as_ptr(),
                BOTH_LEVELS,
                (&raw mut room).cast(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        if done == 0 { Ok(room.attr) } else { Err(self.why(done)) }
    }
}

/// Resolves a name by libpfm4; the error is a clause for the message about an unknown event.
pub fn resolve(name: &str) -> Result<Role, String> {
    let library = load().ok_or(" (libpfm4, which knows more names, is not installed: apt install libpfm4)")?;
    let attr = library.encode(name).map_err(|why| format!(" (libpfm4: {why})"))?;
    // SAFETY: every bit pattern is valid for both members of these unions.
    let (config1, config2) = unsafe { (attr.__bindgen_anon_3.config1, attr.__bindgen_anon_4.config2) };
    let code = Code {
        kind: attr.type_,
        config: attr.config,
        config1,
        config2,
        exclude_kernel: attr.exclude_kernel() != 0,
        exclude_user: attr.exclude_user() != 0,
    };
    Ok(Role {
        name: name.to_owned(),
        code: format!("type={} config={:#x}", code.kind, code.config),
        parts: vec![Part { code, sign: 1 }],
        source: "libpfm4".to_owned(),
        verified: false,
        experimental: false,
        never_zero: false,
    })
}
