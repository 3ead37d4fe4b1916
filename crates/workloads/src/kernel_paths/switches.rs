//! Context switches: processes in a ring of pipes, which pass a token. Each sums an array of its own when it has the
//! token, so that a switch includes getting back into the caches what others drove out of them.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;

use super::rounds::{Failure, Path};
use super::system::{Child, usage};

/// Switches of a round: a multiple of every number of processes.
const SWITCHES: u64 = 240;

/// A process with its array; all ones.
struct Member {
    array: Vec<u64>,
}

impl Member {
    fn new(words: usize) -> Member {
        Member { array: vec![1; words] }
    }

    /// The token as this process passes it on: the received one, plus one, plus the sum.
    fn pass(&self, token: u64) -> u64 {
        let array = std::hint::black_box(&self.array);
        token + 1 + array.iter().sum::<u64>()
    }
}

/// A ring of so many processes, each with an array of so many KiB; the time of a switch, without what passing and
/// summing costs one process alone.
pub fn ring(processes: u64, kib: usize) -> Result<Path, Failure> {
    let words = kib * 1024 / size_of::<u64>();
    let laps = SWITCHES / processes;
    let (mut from_last, mut to_first, children) = start(processes, words)?;
    let own = Member::new(words);
    let (mut alone_from, mut alone_to) = pipe().map_err(|error| format!("pipe: {error}"))?;
    let alone = Member::new(words);
    Ok(Path::new(SWITCHES, SWITCHES * (1 + words as u64), move || {
        let _running = &children;
        let before = usage()?.switches;
        let mut token = 0;
        for _ in 0..laps {
            send(&mut to_first, own.pass(token))?;
            token = receive(&mut from_last)?;
        }
        let switches = usage()?.switches - before;
        if switches < laps {
            return Err(format!("only {switches} switches in {laps} laps: are there several processors?"));
        }
        Ok(token)
    })
    .less(move || {
        let mut token = 0;
        for _ in 0..SWITCHES {
            send(&mut alone_to, alone.pass(token))?;
            token = receive(&mut alone_from)?;
        }
        Ok(token)
    }))
}

/// The processes but for this one, and the ends of the ring that it has.
fn start(processes: u64, words: usize) -> Result<(File, File, Vec<Child>), String> {
    let open = || pipe().map_err(|error| format!("pipe: {error}"));
    let (first, to_first) = open()?;
    let (mut from, mut children) = (first, Vec::new());
    for _ in 1..processes {
        let (next, mut to) = open()?;
        let mut own_from = from.try_clone().map_err(|error| format!("pipe: {error}"))?;
        children.push(Child::fork(|| member(&mut own_from, &mut to, words))?);
        from = next;
    }
    Ok((File::from(OwnedFd::from(from)), File::from(OwnedFd::from(to_first)), children))
}

/// What a child does: takes the token and passes it on, until it is killed. Its array is made here: a copy of the
/// parent's would have the same frames.
fn member(from: &mut PipeReader, to: &mut PipeWriter, words: usize) -> i32 {
    let own = Member::new(words);
    while receive(from).and_then(|token| send(to, own.pass(token))).is_ok() {}
    1
}

fn send(to: &mut impl Write, token: u64) -> Result<(), String> {
    to.write_all(&token.to_le_bytes()).map_err(|error| format!("cannot pass the token: {error}"))
}

fn receive(from: &mut impl Read) -> Result<u64, String> {
    let mut token = [0; 8];
    from.read_exact(&mut token).map_err(|error| format!("cannot take the token: {error}"))?;
    Ok(u64::from_le_bytes(token))
}
