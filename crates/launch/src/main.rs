//! `pagelab-launch REQUEST.json`: starts a program under a policy, counts and times it, writes a record.

use std::io::Read;
use std::process::ExitCode;

use pagelab_contract::record::{Record, Status};
use pagelab_launch::error::{Error, Result};
use pagelab_launch::request::{Request, Scheduler};
use pagelab_launch::rundir::Token;
use pagelab_launch::warnings::Warnings;
use pagelab_launch::{frames, guard, say, scheduler};

const USAGE: &str = "usage: pagelab-launch [[--complaint FILE] REQUEST.json]   (standard input without it; people use: pagelab run)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
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
        [] => report(launch("-")),
        ["--complaint", complaints, request] => launch_for(complaints, request),
        [request] => report(launch(request)),
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

/// A run for a caller that reads the launcher's messages in a file; it ends with its caller.
fn launch_for(complaints: &str, request: &str) -> i32 {
    match say::to_file(complaints.as_ref()) {
        Ok(()) => {
            guard::end_with_caller();
            report(launch(request))
        }
        Err(error) => {
            eprintln!("pagelab-launch: cannot open {complaints} for messages: {error}");
            2
        }
    }
}

fn report(done: Result<i32>) -> i32 {
    done.unwrap_or_else(|error| {
        say::say(&error.to_string());
        error.exit_code()
    })
}

fn launch(source: &str) -> Result<i32> {
    let request = pagelab_launch::request::parse(&read(source)?)?;
    let token = Token::fresh()?;
    let work = || report(run(&request, token));
    guard::guarded(work, || token.remove(request.run_dir_root.as_deref()))
}

fn run(request: &Request, token: Token) -> Result<i32> {
    let record = pagelab_launch::run::run(request, token)?;
    pagelab_launch::run::write(&record, request.record.as_deref())?;
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
    done.map_err(|error| Error::BadInput(format!("cannot read the request {source}: {error}")))?;
    Ok(text)
}

fn code_of(record: &Record) -> i32 {
    match record.outcome.status {
        Status::Ok => 0,
        _ if record.outcome.interrupted => 130,
        _ => 1,
    }
}
