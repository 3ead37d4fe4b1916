//! Messages to standard error without allocation: built in a fixed buffer, written with one system call.

use core::fmt::{self, Write};

use crate::boundary::sys::{self, Errno};

use super::seccomp;

const SIGPIPE: u32 = 13;
const SIGXFSZ: u32 = 25;

const ROOM: usize = 400;

struct Line {
    bytes: [u8; ROOM],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = ROOM - 1 - self.used;
        let taken = text.len().min(room);
        if let (Some(to), Some(from)) =
            (self.bytes.get_mut(self.used..self.used + taken), text.as_bytes().get(..taken))
        {
            to.copy_from_slice(from);
            self.used += taken;
        }
        Ok(())
    }
}

/// Writes `pagelab: …` as one line to standard error; the rest of a longer line is cut off.
pub fn say(what: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; ROOM], used: 0 };
    let _ = line.write_str("pagelab: ");
    let _ = line.write_fmt(what);
    if let Some(last) = line.bytes.get_mut(line.used) {
        *last = b'\n';
        line.used += 1;
    }
    let bytes = line.bytes.get(..line.used).unwrap_or(&[]);
    if seccomp::is_active() {
        let _ = sys::write(2, bytes);
        return;
    }
    // A pipe that nobody reads, or a file at its size limit, would end the program by a signal.
    let mask = sys::block_signals();
    if matches!(sys::write(2, bytes), Err(Errno::EPIPE | Errno::EFBIG)) {
        sys::take_signals(1 << (SIGPIPE - 1) | 1 << (SIGXFSZ - 1));
    }
    sys::restore_signals(mask);
}
