//! How fast a trace file is read: `cargo run --release -p pagelab-trace --example speed FILE`.
//!
//! Decoding only, as page runs, and as page runs reduced to what matters from 4096 pages up; references per second of
//! processor time, so that a busy machine does not matter.

use pagelab_trace::{Chunk, Kinds, Reduced, RunSource, operations};
use std::path::Path;

/// Processor time of this process so far, in seconds.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with schedstat");
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    nanoseconds.expect("nanoseconds on a processor") / 1e9
}

fn rate(name: &str, references: u64, begin: f64) {
    let seconds = processor() - begin;
    println!("{name}: {references} references, {:.1} million a CPU-second", references as f64 / seconds / 1e6);
}

fn drain(mut source: impl RunSource) -> (u64, u64) {
    let (mut references, mut runs) = (0, 0);
    while let Some(batch) = source.next_runs().expect("a whole trace") {
        references += batch.iter().map(|run| run.count).sum::<u64>();
        runs += batch.len() as u64;
    }
    (references, runs)
}

fn main() {
    let path = std::env::args().nth(1).expect("a trace");
    let path = Path::new(&path);
    let begin = processor();
    let mut reader = operations::open_reader(path).expect("a trace");
    let (mut references, mut records) = (0, 0);
    while let Some(chunk) = reader.next_chunk().expect("a whole trace") {
        let (more, length) = match chunk {
            Chunk::References(batch) => (batch.all().len() as u64, batch.all().len()),
            Chunk::Runs(runs) => (runs.iter().map(|run| run.count).sum(), runs.len()),
        };
        references += more;
        records += length;
    }
    rate(&format!("decoded, {records} records"), references, begin);
    let begin = processor();
    let (references, runs) = drain(operations::open_runs(path, 12, Kinds::ALL).expect("a trace"));
    rate(&format!("as {runs} runs"), references, begin);
    let begin = processor();
    let source = operations::open_runs(path, 12, Kinds::ALL).expect("a trace");
    let (references, runs) = drain(Reduced::new(source, 4096, &[1]).expect("a size"));
    rate(&format!("reduced to {runs} runs"), references, begin);
}
