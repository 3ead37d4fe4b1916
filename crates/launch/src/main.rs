//! `pagelab-launch REQUEST.json`: starts a program under a policy, counts and times it, writes a record.

use std::fs::File;
use std::io::Read;
use std::os::fd::IntoRawFd;
use std::process::ExitCode;

use pagelab_contract::record::{Record, Status};
use pagelab_launch::error::{Error, Result};
use pagelab_launch::request::{Request, Scheduler};
use pagelab_launch::run::Destination;
use pagelab_launch::rundir::Token;
use pagelab_launch::sys::{files, signals};
use pagelab_launch::warnings::Warnings;
use pagelab_launch::{frames, guard, say, scheduler};

const USAGE: &str = "usage: pagelab-launch [REQUEST.json]   (standard input without it; people use: pagelab run)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    signals::take(arguments.contains(&IGNORES_CHILDREN));
    let code = match arguments.as_slice() {
        ["--version"] => print(&format!("pagelab-launch {}", env!("CARGO_PKG_VERSION"))),
        ["--help" | "-h"] => print(USAGE),
        ["--counters"] => print(&format!("{:#}", pagelab_launch::counters::report())),
        ["--surcharges"] => print(&format!("{:#}", pagelab_launch::room::document())),
        ["--limits", request] => report(limits(request)),
        ["--frames"] => report(frames::try_here().map(|()| 0)),
        ["--kernel-frames"] => report(frames::kernel::try_here().map(|()| 0)),
        ["--fifo"] => report(scheduler::take(Some(Scheduler::Fifo), &mut Warnings::default()).map(|_| 0)),
        ["--chase"] => chase(),
        ["--touch", bytes, sizes @ ..] => touch(bytes, sizes),
        [] => report(read("-").and_then(|text| launch(&text, None))),
        ["--caller", words @ ..] => launch_for(words),
        [request] => report(read(request).and_then(|text| launch(&text, None))),
        _ => {
            eprintln!("{USAGE}");
            2
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(4))
}

fn print(text: &str) -> i32 {
    println!("{text}");
    0
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
/// counts for them. It ends with its caller.
fn launch_for(words: &[&str]) -> i32 {
    guard::end_with_caller();
    let done = ForCaller::take(words).and_then(|mut pipes| {
        let request = pipes.request.take();
        let mut text = Vec::new();
        request.map_or(Ok(0), |mut request| request.read_to_end(&mut text)).map_err(unreadable("of pagelab"))?;
        launch(&text, Some(&pipes.record))
    });
    report(done)
}

/// The word of a caller that was started with SIGCHLD ignored, which it cannot leave so itself.
const IGNORES_CHILDREN: &str = "ignored=CHLD";

/// The descriptors of `--caller`, as words: `request=5 record=8 messages=9`, and `held=7` for locks that the launcher
/// holds for its caller. None of them reaches a program.
struct ForCaller {
    request: Option<File>,
    record: File,
}

impl ForCaller {
    fn take(words: &[&str]) -> Result<ForCaller> {
        let (mut request, mut record) = (None, None);
        for word in words.iter().filter(|&&word| word != IGNORES_CHILDREN) {
            let (name, number) = word.split_once('=').unwrap_or((word, ""));
            let taken = number.parse().map_err(std::io::Error::other).and_then(files::take_over);
            let file = taken.map_err(|error| Error::BadInput(format!("--caller {word}: {error}\n{USAGE}")))?;
            match name {
                "request" => request = Some(file),
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
}

fn report(done: Result<i32>) -> i32 {
    done.unwrap_or_else(|error| {
        say::say(&error.to_string());
        error.exit_code()
    })
}

fn launch(text: &[u8], to: Option<&File>) -> Result<i32> {
    let request = pagelab_launch::request::parse(text)?;
    let token = Token::fresh()?;
    let work = || report(run(&request, token, to));
    guard::guarded(work, || token.remove(request.run_dir_root.as_deref()))
}

fn run(request: &Request, token: Token, caller: Option<&File>) -> Result<i32> {
    let record = pagelab_launch::run::run(request, token)?;
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
    println!("{text}");
    Ok(0)
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
