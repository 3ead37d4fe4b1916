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
    let sizes: [&[&str]; 27] = [
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
        &["kernel-paths", "--bytes", "256K", "--repetitions", "2"],
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
        (&["kernel-paths", "sh", "--repetitions", "7"], "kernel-paths.sh"),
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

/// The lines of the table that are rows: name, value, unit.
fn rows(output: &Output) -> Vec<(String, f64, String)> {
    let stdout = text(&output.stdout);
    let words = stdout.lines().filter(|line| line.starts_with("  ")).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[0].to_owned(), words[1].parse().expect("a number"), words[2].to_owned())
    });
    words.collect()
}

#[test]
fn rows_of_kernel_paths_are_chosen_by_name_and_stand_in_the_order_of_the_tables() {
    let output = workload(&["kernel-paths", "fork", "communication", "null-call", "--repetitions", "3"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = rows(&output);
    assert_eq!(rows[..3].iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["null-call", "fork", "pipe"]);
    assert!(rows.iter().all(|(_, value, unit)| *value > 0.0 && unit == "ns"), "{rows:?}");
    let of = |name: &str| rows.iter().find(|row| row.0 == name).expect("a row").1;
    assert!(of("fork") > of("null-call"), "a process is made in less time than a number is asked for: {rows:?}");
    let unknown = workload(&["kernel-paths", "switch-3p-0k"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("switch-16p-64k"), "{}", text(&unknown.stderr));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_time_stamp_counter_counts_ticks() {
    let output = workload(&["kernel-paths", "--clock", "tsc", "stat", "memory-read", "--bytes", "64K"]);
    let rows = rows(&output);
    assert_eq!(rows.iter().map(|row| row.2.as_str()).collect::<Vec<_>>(), ["ticks", "ticks/KiB"]);
}

#[test]
fn kernel_paths_that_are_killed_leave_neither_files_nor_processes() {
    for signal in ["KILL", "TERM"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().to_str().expect("a path in UTF-8");
        let mut running = Command::new(env!("CARGO_BIN_EXE_pagelab-workload"))
            .args(["kernel-paths", "switch-16p-64k", "create-10k", "--repetitions", "10000", "--directory", place])
            .spawn()
            .expect("the workload starts");
        let entries = || fs::read_dir(place).expect("the folder").count();
        // Every process has the directory in its arguments: those that were forked, and the one that removes it.
        let processes = || {
            let all = fs::read_dir("/proc").expect("processes").flatten();
            let command = |path: std::path::PathBuf| fs::read(path.join("cmdline")).unwrap_or_default();
            all.filter(|entry| text(&command(entry.path())).contains(place)).count()
        };
        wait_until("files and processes", || entries() > 0 && processes() > 16);
        let id = running.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().expect("kill").success());
        assert!(!running.wait().expect("its end").success());
        wait_until("nothing", || entries() == 0 && processes() == 0);
    }
}

/// Waits for a state, for ten seconds.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    for _ in 0..1000 {
        if reached() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("there is not {what}");
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
fn making_a_file_leaves_no_other_file_changed() {
    // Regression: a.part was truncated and renamed.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (kept, file) = (folder.path().join("a.part"), folder.path().join("a.bin"));
    fs::write(&kept, "keep").expect("the file is written");
    let file = file.to_str().expect("a path in UTF-8");
    assert!(workload(&["make-file", "--file", file, "--bytes", "8K"]).status.success());
    assert_eq!(fs::read_to_string(&kept).expect("the user's own file"), "keep");
    let there = || fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(there(), 2);
    let directory = folder.path().to_str().expect("a path in UTF-8");
    assert_eq!(
        workload(&["make-file", "--file", &format!("{directory}/none/a.bin"), "--bytes", "8K"]).status.code(),
        Some(2)
    );
    fs::create_dir(folder.path().join("taken")).expect("a folder");
    assert_eq!(
        workload(&["make-file", "--file", &format!("{directory}/taken"), "--bytes", "8K"]).status.code(),
        Some(2)
    );
    assert_eq!(there(), 3, "nothing unfinished is left");
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
        &["kernel-paths", "--directory", "/nonexistent"],
        &["kernel-paths", "--remove", "/tmp"],
    ] {
        let output = workload(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?} said nothing");
    }
}
