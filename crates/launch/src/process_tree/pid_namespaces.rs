//! Processes in PID namespaces of their own. The library reports the id that a process has in its namespace, the kernel
//! announces the one that the launcher sees. The two are brought together by the times at which programs were executed,
//! and by the programs' names.

use crate::counters::Announced;
use crate::guests::Guests;
use pagelab_policy::guest::{Report, Started};
use std::collections::{BTreeMap, BTreeSet};

type Processes = BTreeMap<i32, Announced>;

/// A program that a process executed: the process, and the number of the program in it.
type Image = (i32, usize);

/// Most processes that are looked at for all reports: a second or two after the program's end. Reports beyond are
/// unidentified.
const MOST_LOOKS: usize = 1 << 26;

/// Gives every report the id by which the kernel announced its process. `program` is the run's first process. A report
/// without such a process keeps its id, and is noted as unidentified.
pub fn resolve(guests: &mut Guests, announced: &Processes, program: i32) {
    if announced.is_empty() {
        return;
    }
    let (at_home, mut elsewhere): (Vec<&mut Report>, Vec<&mut Report>) =
        guests.reports.iter_mut().partition(|report| is_announced(report, announced, program));
    if elsewhere.is_empty() {
        return;
    }
    let mut reported: BTreeSet<Image> =
        at_home.iter().filter_map(|report| image_at(announced, report.pid as i32, report.start_ns)).collect();
    // The run's first process is in the launcher's namespace.
    reported.extend(
        (0..announced.get(&program).map_or(0, |process| process.images.len())).map(|image| (program, image)),
    );
    let mut forked: BTreeSet<i32> = at_home.iter().map(|report| report.pid as i32).collect();
    // By a process's id in its namespace: where its programs were found.
    let mut found: Vec<(u32, i32)> = Vec::new();
    let (mut unidentified, mut looks) = (Vec::new(), MOST_LOOKS);
    // Those of executed programs first: what they say of a process holds for its time before, too.
    // Ids rise in a namespace as they do outside, so forked children are taken in the order of theirs.
    elsewhere.sort_by_key(|report| {
        let is_fork = report.started == Started::Fork;
        (is_fork, if is_fork { u64::from(report.pid) } else { report.start_ns })
    });
    for report in elsewhere {
        looks = looks.saturating_sub(announced.len() + found.len());
        if looks == 0 {
            unidentified.push(report.start_ns);
            continue;
        }
        let known: Vec<i32> = found.iter().filter(|(inner, _)| *inner == report.pid).map(|&(_, pid)| pid).collect();
        let place = if report.started == Started::Fork {
            of_fork(report, announced, &known, &forked).inspect(|&pid| _ = forked.insert(pid))
        } else {
            let image = of_exec(report, announced, &known, &reported);
            reported.extend(image);
            image.map(|(pid, _)| pid)
        };
        let Some(pid) = place else {
            unidentified.push(report.start_ns);
            continue;
        };
        found.push((report.pid, pid));
        // The parent's id is announced, too.
        (report.pid, report.ppid) = (pid as u32, 0);
    }
    guests.unidentified = unidentified;
}

/// Whether the kernel announced a process with the report's id that existed at its time.
fn is_announced(report: &Report, announced: &Processes, program: i32) -> bool {
    let pid = report.pid as i32;
    pid == program || announced.get(&pid).is_some_and(|process| lives_at(process, report.start_ns))
}

fn lives_at(process: &Announced, time_ns: u64) -> bool {
    process.start_ns.is_none_or(|start| start <= time_ns) && process.end_ns.is_none_or(|end| time_ns <= end)
}

/// The program that a process runs at a time.
fn image_at(announced: &Processes, pid: i32, time_ns: u64) -> Option<Image> {
    let process = announced.get(&pid).filter(|process| lives_at(process, time_ns))?;
    let begun = process.images.iter().take_while(|image| image.at_ns <= time_ns).count();
    begun.checked_sub(1).map(|number| (pid, number))
}

/// The image of a report on an executed program: one without a report that runs at that time. That of a `known` process
/// comes first, then one of the same name, then the latest. If none has the name (the kernel names a script, the report
/// its interpreter), there must be only one.
fn of_exec(report: &Report, announced: &Processes, known: &[i32], reported: &BTreeSet<Image>) -> Option<Image> {
    let name: String = report.exe.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
    let running = announced.keys().filter_map(|&pid| image_at(announced, pid, report.start_ns));
    let images: Vec<_> = running
        .filter(|image| !reported.contains(image))
        .filter_map(|image| {
            let executed = announced.get(&image.0)?.images.get(image.1)?;
            Some((known.contains(&image.0), executed.name == name, executed.at_ns, image))
        })
        .collect();
    let (is_known, is_named, _, image) = images.iter().max()?;
    (*is_known || *is_named || images.len() == 1).then_some(*image)
}

/// The process of a report on a forked child: one that is not in `forked`, and has not executed a program by then. A
/// `known` one comes first, then the earliest.
fn of_fork(report: &Report, announced: &Processes, known: &[i32], forked: &BTreeSet<i32>) -> Option<i32> {
    let at = report.start_ns;
    let of_a_fork = |process: &Announced| process.start_ns.is_some() && lives_at(process, at);
    let has_executed = |process: &Announced| process.images.first().is_some_and(|image| image.at_ns <= at);
    let children = announced.iter().filter(|(_, process)| of_a_fork(process) && !has_executed(process));
    let free = children.filter(|(pid, _)| !forked.contains(pid));
    free.min_by_key(|(pid, process)| (!known.contains(pid), process.start_ns)).map(|(&pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Image as Executed;
    use crate::frames::report::tests;

    fn report(pid: u32, exe: &str, started: Started, start_ns: u64) -> Report {
        Report { pid, exe: exe.to_owned(), started, start_ns, ..tests::report(pid, Vec::new(), None) }
    }

    fn process(ppid: i32, lives: (u64, u64), images: &[(u64, &str)]) -> Announced {
        Announced {
            ppid,
            start_ns: Some(lives.0),
            end_ns: Some(lives.1),
            name: None,
            images: images.iter().map(|&(at_ns, name)| Executed { at_ns, name: name.to_owned() }).collect(),
        }
    }

    fn resolved(reports: Vec<Report>, announced: &Processes) -> (Vec<u32>, Vec<u64>) {
        let mut guests = Guests { reports, ..Guests::default() };
        resolve(&mut guests, announced, 100);
        (guests.reports.iter().map(|report| report.pid).collect(), guests.unidentified)
    }

    #[test]
    fn processes_with_the_same_id_in_two_namespaces_are_two() {
        let announced = BTreeMap::from([
            (
                100,
                Announced { images: vec![Executed { at_ns: 10, name: "sh".to_owned() }], ..Announced::default() },
            ),
            (101, process(100, (20, 50), &[(22, "unshare")])),
            (102, process(101, (25, 49), &[(26, "work")])),
            (103, process(100, (60, 90), &[(62, "unshare")])),
            (104, process(103, (65, 89), &[(66, "script.sh")])),
        ]);
        let reports = vec![
            report(100, "/bin/dash", Started::Exec, 11),
            report(101, "/bin/unshare", Started::Exec, 23),
            report(1, "/bin/work", Started::Exec, 27),
            report(103, "/bin/unshare", Started::Exec, 63),
            report(1, "/bin/dash", Started::Exec, 67),
        ];
        assert_eq!(resolved(reports, &announced), (vec![100, 101, 102, 103, 104], vec![]));
    }

    #[test]
    fn a_forked_child_is_the_process_that_executes_a_program_later() {
        let announced = BTreeMap::from([
            (100, process(1, (5, 99), &[(10, "work")])),
            (101, process(100, (20, 90), &[(40, "true")])),
            (102, process(100, (21, 90), &[])),
        ]);
        let reports = vec![
            report(1, "/bin/work", Started::Fork, 30),
            report(2, "/bin/work", Started::Fork, 31),
            report(1, "/bin/true", Started::Exec, 41),
            report(7, "/bin/other", Started::Exec, 42),
        ];
        assert_eq!(resolved(reports, &announced), (vec![101, 102, 101, 7], vec![42]));
    }
}
