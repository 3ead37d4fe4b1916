//! The launcher's own messages, kept apart from the program's standard error.

use crate::words;
use std::fs::File;
use std::io::{self, Write};
use std::sync::OnceLock;

static FILE: OnceLock<File> = OnceLock::new();

/// Sends messages to this file from now on. (A pipe to the caller: it is never full for lack of space.)
pub fn to_file(file: File) {
    // Set once, from main; a second call would keep the first file.
    let _ = FILE.set(file);
}

/// Writes to standard error at once, also if messages go to the caller: while the program, which shares it, does not
/// run.
pub fn early(message: &str) {
    let line = format!("pagelab: {}\n", words::plain_lines(message));
    // A closed standard error does not end the run.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes one message, as one line.
pub fn say(message: &str) {
    let line = format!("pagelab-launch: {}\n", words::plain_lines(message));
    let done = match FILE.get() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => io::stderr().write_all(line.as_bytes()),
    };
    // No place is left to report that this failed.
    let _ = done;
}
