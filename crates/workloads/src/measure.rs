//! Reporting measurements: one JSON line each on the descriptor named by `PAGELAB_MEASURE_FD`; and a window,
//! [`WINDOW`], around all that is timed, so that it excludes set-up and first touch.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, RawFd};
use std::time::Instant;

/// Name of the window from the first timed repetition to the last.
const WINDOW: &CStr = c"work";

/// Computed and expected result.
pub struct Proof {
    pub checksum: u64,
    pub expected: u64,
}

/// The destination of this execution's measurements; without a request for them, there is none.
pub struct Measurements {
    sink: Option<File>,
    window: Option<Window>,
}

/// An open window of pagelab's, which dropping ends.
struct Window {
    end: extern "C" fn() -> c_int,
}

impl Window {
    /// Begins it; `None` if the library is not in the process, or nothing is recorded.
    fn begin() -> Option<Window> {
        // SAFETY: both names are NUL-terminated; the default handle searches all that is loaded.
        let [begin, end] = [c"pagelab_begin", c"pagelab_end"]
            .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
        if begin.is_null() || end.is_null() {
            return None;
        }
        // SAFETY: the functions of pagelab.h, which have these types.
        let (begin, end) = unsafe {
            (
                std::mem::transmute::<*mut libc::c_void, extern "C" fn(*const c_char) -> c_int>(begin),
                std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(end),
            )
        };
        (begin(WINDOW.as_ptr()) == 0).then_some(Window { end })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        (self.end)();
    }
}

impl Measurements {
    /// Opens the descriptor that the launcher announced, if it did.
    pub fn from_environment() -> Result<Self, String> {
        let Ok(text) = std::env::var("PAGELAB_MEASURE_FD") else {
            return Ok(Self { sink: None, window: None });
        };
        let fd: RawFd = text
            .parse()
            .ok()
            .filter(|&fd| fd > 2)
            .ok_or_else(|| format!("PAGELAB_MEASURE_FD={text} names no descriptor above 2; unset it"))?;
        // SAFETY: the launcher opened this descriptor for the program alone; nothing else in this process
        // knows its number, so the File owns it.
        let sink = unsafe { File::from_raw_fd(fd) };
        Ok(Self { sink: Some(sink), window: None })
    }

    /// Whether the run requested measurements.
    pub fn wanted(&self) -> bool {
        self.sink.is_some()
    }

    /// Times one repetition and reports its mean cost per operation in nanoseconds.
    pub fn time<T>(&mut self, name: &str, operations: u64, work: impl FnOnce() -> T) -> Result<T, String> {
        if self.window.is_none() {
            self.window = Window::begin();
        }
        let start = Instant::now();
        let result = std::hint::black_box(work());
        let elapsed_ns = start.elapsed().as_nanos() as f64;
        self.report(name, elapsed_ns / operations.max(1) as f64, "ns")?;
        Ok(result)
    }

    /// The last repetition is over: what follows (proofs, giving memory back) is in no window.
    pub fn end_window(&mut self) {
        self.window = None;
    }

    /// Reports one value.
    pub fn report(&mut self, name: &str, value: f64, unit: &str) -> Result<(), String> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        writeln!(sink, r#"{{"name":"{name}","value":{value},"unit":"{unit}"}}"#)
            .map_err(|error| format!("cannot write measurement {name} to PAGELAB_MEASURE_FD: {error}"))
    }
}
