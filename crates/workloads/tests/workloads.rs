//! Every workload proves its work, and refuses what it cannot do with a message that helps.

use std::fs;
use std::process::{Command, Output};

fn workload(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagelab-workload")).args(args).output().expect("the workload starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_workload_verifies_its_checksum() {
    let sizes: [&[&str]; 26] = [
        &["gups", "--bytes", "1M", "--updates", "10000", "--repetitions", "3"],
        &["pointer-chase", "--bytes", "1M", "--laps", "2", "--repetitions", "2"],
        &["pointer-chase", "--bytes", "1M", "--stride", "4096"],
        &["stream", "--bytes", "1M", "--repetitions", "5"],
        &["btree", "--bytes", "1M", "--lookups", "10000"],
        &["malloc-storm", "--bytes", "1M", "--operations", "20000", "--threads", "3"],
        &["fft", "--bytes", "64K", "--operations", "2"],
        &["fft", "--bytes", "64K", "--operations", "2", "--memory", "each"],
        &["scimark", "fft", "--bytes", "64K", "--operations", "2"],
        &["scimark", "lu", "--bytes", "64K", "--operations", "2", "--memory", "each"],
        &["scimark", "monte-carlo", "--repetitions", "2", "--operations", "1"],
        &["scimark", "sor", "--bytes", "64K", "--operations", "2", "--memory", "each"],
        &["scimark", "sparse", "--bytes", "64K", "--operations", "2"],
        &["graph500", "--bytes", "1M", "--repetitions", "3"],
        &["graph500", "--bytes", "4K"],
        &["gap", "bfs", "--bytes", "1M", "--repetitions", "3"],
        &["gap", "bfs", "--graph", "road", "--bytes", "1M"],
        &["gap", "pr", "--bytes", "1M", "--repetitions", "3"],
        &["gap", "sssp", "--bytes", "1M", "--repetitions", "2"],
        &["gap", "sssp", "--graph", "road", "--bytes", "4K"],
        &["gap", "bc", "--bytes", "1M", "--repetitions", "2"],
        &["gap", "bc", "--graph", "road", "--bytes", "1M", "--repetitions", "2"],
        &["cross-sections", "--bytes", "1M", "--lookups", "5000", "--repetitions", "2"],
        &["hash-join", "--bytes", "1M", "--repetitions", "2"],
        &["ping", "--calls", "20", "--repetitions", "3"],
        &["ping", "--protocol", "http", "--calls", "20", "--repetitions", "3"],
    ];
    for args in sizes {
        let output = workload(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).ends_with("verified\n"), "{args:?}: {}", text(&output.stdout));
    }
}

#[test]
fn the_same_seed_does_the_same_work_and_another_does_not() {
    let run = |seed: &str| workload(&["gups", "--bytes", "1M", "--updates", "5000", "--seed", seed]).stdout;
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn every_repetition_is_one_measurement() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (args, name) in [
        (&["scimark", "sparse", "--bytes", "64K", "--operations", "2", "--repetitions", "7"][..], "scimark.sparse"),
        (&["ping", "--calls", "5", "--repetitions", "7"], "ping.tcp"),
        (&["gap", "bc", "--bytes", "64K", "--repetitions", "7"], "gap.bc"),
        (&["gap", "sssp", "--bytes", "64K", "--repetitions", "7"], "gap.sssp"),
        (&["cross-sections", "--bytes", "64K", "--lookups", "9", "--repetitions", "7"], "cross-sections.lookup"),
        (&["hash-join", "--bytes", "64K", "--repetitions", "7"], "hash-join.row"),
    ] {
        let path = folder.path().join("measurements");
        let binary = env!("CARGO_BIN_EXE_pagelab-workload");
        // As the launcher does it: a descriptor above 2 that the program finds by its number.
        let line = format!("exec 3>{}; PAGELAB_MEASURE_FD=3 exec {binary} {}", path.display(), args.join(" "));
        assert!(Command::new("/bin/sh").args(["-c", &line]).status().expect("a shell").success());
        let lines = fs::read_to_string(&path).expect("measurements");
        assert_eq!(lines.lines().count(), 7, "{lines}");
        assert!(lines.lines().all(|line| line.starts_with(&format!("{{\"name\":\"{name}\""))), "{lines}");
    }
}

#[test]
fn scans_in_both_orders_read_the_whole_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("scan.bin");
    let file = file.to_str().expect("a path in UTF-8");
    assert!(workload(&["make-file", "--file", file, "--bytes", "1M"]).status.success());
    let scan = |order: &str| workload(&["mmap-scan", "--file", file, "--order", order]);
    assert!(scan("sequential").status.success());
    assert_eq!(scan("sequential").stdout, scan("random").stdout);
    assert!(workload(&["mmap-scan", "--file", file, "--percent", "10"]).status.success());
}

#[test]
fn a_file_changed_after_it_was_made_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("scan.bin");
    let file = path.to_str().expect("a path in UTF-8");
    assert!(workload(&["make-file", "--file", file, "--bytes", "64K"]).status.success());
    let mut bytes = fs::read(&path).expect("the file that was made");
    bytes[5 * 4096] ^= 1;
    fs::write(&path, &bytes).expect("the file is written");
    assert_eq!(workload(&["mmap-scan", "--file", file]).status.code(), Some(1));
    fs::write(&path, &bytes[..8192]).expect("the file is written");
    let torn = workload(&["mmap-scan", "--file", file]);
    assert_eq!(torn.status.code(), Some(2));
    assert!(text(&torn.stderr).contains("make-file"), "{}", text(&torn.stderr));
}

#[test]
fn bad_arguments_are_refused() {
    for args in [
        &["gups", "--bytes", "0"][..],
        &["gups", "--bytes", "12Q"],
        &["pointer-chase", "--stride", "100"],
        &["pointer-chase", "--bytes", "64"],
        &["malloc-storm", "--threads", "0"],
        &["mmap-scan", "--file", "/nonexistent"],
        &["scimark", "lu", "--bytes", "L9"],
        &["scimark", "lu", "--memory", "twice"],
        &["fft", "--repetitions", "0"],
    ] {
        let output = workload(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?} said nothing");
    }
}
