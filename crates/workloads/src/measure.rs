//! Reporting measurements: one JSON line each on the descriptor named by `PAGELAB_MEASURE_FD`.

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, RawFd};
use std::time::Instant;

/// Where the measurements of this execution go; silent where nobody asked for them.
pub struct Measurements {
    sink: Option<File>,
}

impl Measurements {
    /// Opens the descriptor that the launcher announced, if it did.
    pub fn from_environment() -> Result<Self, String> {
        let Ok(text) = std::env::var("PAGELAB_MEASURE_FD") else {
            return Ok(Self { sink: None });
        };
        let fd: RawFd = text
            .parse()
            .ok()
            .filter(|&fd| fd > 2)
            .ok_or_else(|| format!("PAGELAB_MEASURE_FD={text} names no descriptor above 2; unset it"))?;
        // SAFETY: the launcher opened this descriptor for the program alone; nothing else in this process
        // knows its number, so the File owns it.
        let sink = unsafe { File::from_raw_fd(fd) };
        Ok(Self { sink: Some(sink) })
    }

    /// Times one repetition and reports its mean cost per operation in nanoseconds.
    pub fn time<T>(&mut self, name: &str, operations: u64, work: impl FnOnce() -> T) -> Result<T, String> {
        let start = Instant::now();
        let result = std::hint::black_box(work());
        let elapsed_ns = start.elapsed().as_nanos() as f64;
        self.report(name, elapsed_ns / operations.max(1) as f64, "ns")?;
        Ok(result)
    }

    /// Reports one value.
    pub fn report(&mut self, name: &str, value: f64, unit: &str) -> Result<(), String> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        writeln!(sink, r#"{{"name":"{name}","value":{value},"unit":"{unit}"}}"#)
            .map_err(|error| format!("cannot write measurement {name} to PAGELAB_MEASURE_FD: {error}"))
    }
}
