//! Prints the guest files of a run directory.

use pagelab_abi::guest::Report;

fn main() {
    let dir = std::env::args().nth(1).expect("usage: showguest RUN_DIR");
    let entries = std::fs::read_dir(dir).expect("run directory").filter_map(Result::ok);
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "guest"));
    paths.sort();
    for path in paths {
        let bytes = std::fs::read(&path).expect("guest file");
        match Report::decode(&bytes) {
            Err(error) => println!("{}: {error}", path.display()),
            Ok(report) => show(&report),
        }
    }
}

fn nonzero(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<(&'static str, u64)> {
    counts.filter(|&(_, count)| count != 0).collect()
}

fn show(report: &Report) {
    let us = |from: u64, to: Option<u64>| to.map(|to| (to - from) / 1000);
    println!(
        "{} {} {:?} {:?} disabled={:?} start={:?}us measure={:?}us {:?} {:?}",
        report.pid,
        report.exe,
        report.started,
        report.state,
        report.disabled,
        us(report.start_ns, report.ready_ns),
        report.end_ns.and_then(|end| us(end, report.measured_ns)),
        report.placement,
        report.rusage,
    );
    println!("  {:?}", report.counters);
    for warning in &report.warnings {
        println!("  warning {warning:x?}");
    }
    if let Some(engine) = &report.engine {
        println!("  engine {:?} {:?} errno={:?}", engine.state, engine.failure, engine.errno);
        println!("    {:?}", nonzero(engine.counts.named()));
    }
    for frames in &report.frames {
        println!(
            "  frames {} {} colours={} {:?}",
            frames.number,
            frames.kind.name(),
            frames.colours,
            frames.out_of_reach
        );
        println!("    {:?}", nonzero(frames.counts.named()));
    }
    for region in &report.regions {
        println!(
            "  {:8} asked={:?} via={:?} {:x}-{:x} mapped={} resident={} {:?} tiles={:?} retired {:?} {:?}",
            region.memory.map_or("other", |memory| memory.name()),
            region.asked,
            region.via.map(|via| via.name()),
            region.start,
            region.end,
            region.mapped_bytes,
            region.resident_bytes,
            region.by_size,
            region.tiles,
            region.retired_by_size,
            region.retired_tiles,
        );
    }
    if std::env::args().any(|arg| arg == "-r") {
        for file in &report.residency {
            println!("  residency {} {}/{}", file.path, file.resident_pages, file.pages);
        }
    }
}
