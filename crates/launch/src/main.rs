//! `pagelab-launch REQUEST.json`: starts a program under a policy, counts and times it, writes a record.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::IntoRawFd;
use std::process::ExitCode;

use pagelab_contract::record::{Record, Status};
use pagelab_launch::error::{Error, Result};
use pagelab_launch::request::{Request, Scheduler};
use pagelab_launch::run::Destination;
use pagelab_launch::rundir::{self, Making};
use pagelab_launch::sys::{files, signals};
use pagelab_launch::warnings::Warnings;
use pagelab_launch::{guard, say, scheduler};

const USAGE: &str = "usage: pagelab-launch [REQUEST.json]   (standard input without it; people use: pagelab run)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    signals::take();
    let code = match arguments.as_slice() {
        ["--version"] => print(&format!("pagelab-launch {}", env!("CARGO_PKG_VERSION"))),
        ["--help" | "-h"] => print(USAGE),
        ["--counters"] => print(&format!("{:#}", pagelab_launch::counters::report())),
        ["--surcharges"] => print(&format!("{:#}", pagelab_launch::room::document())),
        ["--limits", request] => report(limits(request)),
        ["--frames", request] => report(try_frames(request)),
        ["--fifo"] => report(scheduler::take(Some(Scheduler::Fifo), &mut Warnings::default()).map(|_| 0)),
        ["--chase"] => chase(),
        ["--touch", bytes, sizes @ ..] => touch(bytes, sizes),
        [] => report(read("-").and_then(|text| launch(&text, None))),
        ["--caller", words @ ..] => launch_for(words),
        [request] => report(read(request).and_then(|text| launch(&text, None))),
        _ => {
            // Without standard error there is the exit code.
            let _ = std::io::stderr().write_all(format!("{USAGE}\n").as_bytes());
            2
        }
    };
    ExitCode::from(exit_code(code))
}

fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(4)
}

/// Prints a text; a reader that has ended (`| head`) wants no more of it.
fn print(text: &str) -> i32 {
    match std::io::stdout().write_all(format!("{text}\n").as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let why = pagelab_launch::sys::errno_text(&error);
            say::say(&format!("cannot write to standard output: {why}; run it again with another: > FILE"));
            3
        }
        _ => 0,
    }
}

/// The counters' table of a pointer chase.
fn chase() -> i32 {
    match pagelab_launch::counters::chase() {
        Ok(table) => print(&format!("{table:#}")),
        Err(error) => {
            let why = pagelab_launch::sys::errno_text(&error);
            say::say(&format!("cannot count on this machine: {why}; run: pagelab-launch --counters"));
            3
        }
    }
}

/// Touches free memory, for the launcher itself.
fn touch(bytes: &str, sizes: &[&str]) -> i32 {
    let done = bytes.parse().map_err(std::io::Error::other);
    i32::from(done.and_then(|bytes| pagelab_launch::host_backing::touch(bytes, sizes)).is_err())
}

/// A run for `pagelab`, which it talks to by pipes: they need no space in a file system, and no limit on file size
/// counts for them. It ends with its caller. Behind the record comes a line with its exit code, which a caller that
/// ignores SIGCHLD learns in no other way.
fn launch_for(words: &[&str]) -> i32 {
    guard::end_with_caller();
    let mut pipes = match ForCaller::take(words) {
        Ok(pipes) => pipes,
        Err(error) => return report(Err(error)),
    };
    let code = report(pipes.read_request().and_then(|text| launch(&text, Some(&pipes.record))));
    // A caller that has ended needs no code.
    let _ = pipes.record.write_all(format!("\n{}\n", exit_code(code)).as_bytes());
    code
}

/// The descriptors of `--caller`, as words: `request=5:1200 record=8 messages=9`, and `held=7` for locks that the
/// launcher holds for its caller. None of them reaches a program. The request has so many bytes: a process that the
/// caller forked meanwhile may hold its pipe open.
struct ForCaller {
    request: Option<(File, usize)>,
    record: File,
}

impl ForCaller {
    fn take(words: &[&str]) -> Result<ForCaller> {
        let (mut request, mut record) = (None, None);
        for word in words {
            let bad = |error| Error::BadInput(format!("--caller {word}: {error}\n{USAGE}"));
            let (name, number) = word.split_once('=').unwrap_or((word, ""));
            let (number, length) = number.split_once(':').unwrap_or((number, "0"));
            let length = length.parse().map_err(std::io::Error::other).map_err(bad)?;
            let file = number.parse().map_err(std::io::Error::other).and_then(files::take_over).map_err(bad)?;
            match name {
                "request" => request = Some((file, length)),
                "record" => record = Some(file),
                "messages" => say::to_file(file),
                // Open as long as this process and the one that it forks are.
                "held" => drop(file.into_raw_fd()),
                _ => return Err(Error::BadInput(format!("--caller {word}: no such word\n{USAGE}"))),
            }
        }
        let record = record.ok_or_else(|| Error::BadInput(USAGE.to_owned()))?;
        Ok(ForCaller { request, record })
    }

    fn read_request(&mut self) -> Result<Vec<u8>> {
        let Some((mut file, length)) = self.request.take() else { return Ok(Vec::new()) };
        let mut text = vec![0; length];
        file.read_exact(&mut text).map_err(unreadable("of pagelab"))?;
        Ok(text)
    }
}

fn report(done: Result<i32>) -> i32 {
    done.unwrap_or_else(|error| {
        say::say(&error.to_string());
        error.exit_code()
    })
}

fn launch(text: &[u8], to: Option<&File>) -> Result<i32> {
    let request = pagelab_launch::request::parse(text)?;
    let (making, left) = rundir::begin()?;
    let work = || report(run(&request, &making, to));
    guard::guarded(work, || left.remove(request.run_dir_root.as_deref()))
}

fn run(request: &Request, making: &Making, caller: Option<&File>) -> Result<i32> {
    let record = pagelab_launch::run::run(request, making)?;
    let to = match (caller, request.record.as_deref()) {
        (Some(caller), _) => Destination::Caller(caller),
        (None, Some(path)) => Destination::Path(path),
        (None, None) => Destination::Output,
    };
    pagelab_launch::run::write(&record, to)?;
    Ok(code_of(&record))
}

/// The warnings that runs of a request would begin with, as JSON.
fn limits(source: &str) -> Result<i32> {
    let warnings = pagelab_launch::run::scarce(&pagelab_launch::request::parse(&read(source)?)?)?.0;
    let text = serde_json::to_string(&warnings)
        .map_err(|error| Error::Internal(format!("cannot encode the warnings: {error}")))?;
    Ok(print(&text))
}

/// Whether frames can be placed as a request's policy says.
fn try_frames(source: &str) -> Result<i32> {
    let request = pagelab_launch::request::parse(&read(source)?)?;
    pagelab_launch::run::try_frames(&request).map(|()| 0)
}

fn read(source: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let done = if source == "-" {
        std::io::stdin().read_to_end(&mut text).map(drop)
    } else {
        std::fs::read(source).map(|bytes| text = bytes)
    };
    done.map_err(unreadable(source))?;
    Ok(text)
}

fn unreadable(source: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::BadInput(format!("cannot read the request {source}: {error}"))
}

fn code_of(record: &Record) -> i32 {
    match record.outcome.status {
        Status::Ok => 0,
        _ if record.outcome.interrupted => 130,
        _ => 1,
    }
}
