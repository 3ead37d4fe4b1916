//! Capture into a file.

use super::files;
use super::{Output, Records};
use crate::capture::{Outcome, Request, capture};
use crate::error::TraceError;
use crate::format::{Content, Header};
use crate::source::Result;
use std::path::Path;
use std::time::Duration;

pub(super) fn run(
    command: &[String],
    socket: &Path,
    grace_s: f64,
    records: &Records,
    output: &Output,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Outcome> {
    let content = records.page_bits.map_or(Content::References, |page_bits| Content::Runs { page_bits });
    let mut header = Header::new(content);
    header.provenance = output.provenance.clone();
    let grace = Duration::try_from_secs_f64(grace_s)
        .map_err(|_| TraceError::Invalid("the time that processes may outlive the program is not a time".into()))?;
    let request =
        Request { command: command.to_vec(), socket: socket.to_owned(), grace, settings: output.settings() };
    capture(&request, &header, files::create_in_place(output)?, go_on)
}
