//! The program's standard streams, and the files in which the launcher captures what it must read.

use crate::error::{Error, Result, no_descriptor};
use crate::request::Request;
use crate::rundir::RunDir;
use crate::sys;
use crate::sys::child::Stream;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// A file the program writes and the launcher reads. A file and not a pipe, so that the program never waits for the
/// launcher and the launcher never wakes for the program.
pub struct Capture {
    writer: OwnedFd,
    /// The launcher's descriptor, at the start of the file.
    pub reader: File,
}

impl Capture {
    /// Makes a capture file called `name` in the run directory.
    pub fn create(run_dir: &RunDir, name: &CStr) -> Result<Capture> {
        let (writer, reader) = run_dir.capture(name)?;
        let writer = sys::files::high_duplicate(&writer).map_err(no_descriptor)?;
        Ok(Capture { writer, reader })
    }

    /// The descriptor to be given to the program.
    pub fn fd(&self) -> i32 {
        self.writer.as_raw_fd()
    }
}

/// The streams as the request wants them.
pub struct Streams {
    /// For the child.
    pub setup: [Stream; 3],
    /// Standard output, when a regular expression reads it.
    pub stdout: Option<Capture>,
    /// Where captured standard output must be copied to.
    pub copy_to: Option<Copy>,
}

/// Copies captured output to the destination of the request.
pub struct Copy {
    from: File,
    to: File,
}

/// Most bytes that are copied in one go while the program runs: time-out and signals are not to wait for its output.
const MOST_AT_ONCE: u64 = 4 << 20;

impl Copy {
    /// Copies a part of the new output; returns whether there may be more now. Errors end the copying, not the run.
    pub fn forward(&mut self) -> io::Result<bool> {
        self.forward_up_to(MOST_AT_ONCE)
    }

    /// Copies all that is there: the program has ended, and what it left behind adds no more.
    pub fn finish(mut self) -> io::Result<()> {
        let end = self.from.metadata()?.len();
        while self.from.stream_position()? < end && self.forward_up_to(end)? {}
        Ok(())
    }

    fn forward_up_to(&mut self, most: u64) -> io::Result<bool> {
        let mut buffer = [0; 64 * 1024];
        let mut copied = 0;
        while copied < most {
            // A program can lengthen its output by a hole of any size, which contains nothing to be copied.
            if !sys::files::skip_hole(&self.from)? {
                return Ok(false);
            }
            let got = self.from.read(&mut buffer)?;
            if got == 0 {
                return Ok(false);
            }
            self.to.write_all(buffer.get(..got).unwrap_or(&[]))?;
            copied += got as u64;
        }
        Ok(true)
    }
}

fn stream(text: &str) -> Result<Stream> {
    let path = match text {
        "inherit" => return Ok(Stream::Inherit),
        "null" => "/dev/null",
        path => path,
    };
    let path = CString::new(path).map_err(|_| Error::BadInput(format!("{text:?} contains a NUL byte")))?;
    Ok(Stream::Path(path))
}

/// Prepares the streams.
pub fn prepare(request: &Request, run_dir: &RunDir) -> Result<Streams> {
    let mut setup = [stream(&request.stdin)?, stream(&request.stdout)?, stream(&request.stderr)?];
    let mut streams_stdout = None;
    let mut copy_to = None;
    // A path needs no capture: the file itself is read afterwards.
    if request.measurements.regex.is_some() && matches!(request.stdout.as_str(), "inherit" | "null") {
        let capture = Capture::create(run_dir, c"stdout")?;
        setup[1] = Stream::Fd(capture.fd());
        if request.stdout == "inherit" {
            let failed = |error: io::Error| Error::Internal(format!("cannot capture output: {error}"));
            let from = run_dir.open(c"stdout")?;
            let to = File::from(sys::files::high_duplicate(&io::stdout()).map_err(failed)?);
            copy_to = Some(Copy { from, to });
        }
        streams_stdout = Some(capture);
    }
    Ok(Streams { setup, stdout: streams_stdout, copy_to })
}
