//! The CPUs of a run, within those that its cgroup and affinity allow, and the memory node of its program.

use crate::error::{Error, Result};
use crate::sys::{self, process};

/// The CPUs of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// CPUs the program may run on.
    pub program: Vec<usize>,
    /// Whether the program is pinned to them (false: they are simply all that it may use).
    pub pinned: bool,
    /// CPUs for the launcher itself while the program runs: others than the program's, where there are any.
    pub launcher: Vec<usize>,
}

/// Checks the requested CPUs against the allowed ones.
pub fn choose(asked: &[usize]) -> Result<Cpus> {
    let allowed = process::allowed_cpus()
        .map_err(|error| Error::Internal(format!("cannot read the CPU affinity: {}", sys::errno_text(&error))))?;
    choose_among(asked, allowed)
}

fn choose_among(asked: &[usize], allowed: Vec<usize>) -> Result<Cpus> {
    if asked.is_empty() {
        return Ok(Cpus { program: allowed.clone(), pinned: false, launcher: allowed });
    }
    let outside: Vec<usize> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if !outside.is_empty() {
        return Err(Error::Cannot(format!(
            "cannot pin the program to CPU {}: this process may use CPUs {} (its cpuset and affinity); \
             run: pagelab run --cpu {} …",
            list(&outside),
            list(&allowed),
            allowed.last().copied().unwrap_or(0)
        )));
    }
    let mut program = asked.to_vec();
    program.sort_unstable();
    program.dedup();
    let others: Vec<usize> = allowed.iter().copied().filter(|cpu| !program.contains(cpu)).collect();
    let launcher = if others.is_empty() { allowed } else { others };
    Ok(Cpus { program, pinned: true, launcher })
}

/// CPUs as the kernel writes lists of them: `0-3,8`.
pub fn list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == cpu => last.1 = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |&(from, to): &(usize, usize)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

const WITH_MEMORY: &str = "/sys/devices/system/node/has_memory";

/// Checks the requested memory node. A machine without node files has one node, number 0.
pub fn check_node(asked: Option<u32>) -> Result<()> {
    let Some(node) = asked else { return Ok(()) };
    let text = std::fs::read_to_string(WITH_MEMORY).unwrap_or_else(|_| "0".to_owned());
    let nodes = parse_list(text.trim());
    if nodes.contains(&node) {
        return Ok(());
    }
    Err(Error::Cannot(format!(
        "cannot bind memory to node {node}: nodes with memory here: {}; run: pagelab run --node {} …",
        text.trim(),
        nodes.first().copied().unwrap_or(0)
    )))
}

/// The kernel's list format: `0-3,8`.
fn parse_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse::<u32>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_keeps_off_the_programs_cpus_where_it_can() {
        let cpus = choose_among(&[1, 1], vec![0, 1]).expect("allowed");
        assert_eq!((cpus.program, cpus.launcher), (vec![1], vec![0]));
        let cpus = choose_among(&[0], vec![0]).expect("allowed");
        assert_eq!(cpus.launcher, [0]);
    }

    #[test]
    fn a_cpu_outside_the_cpuset_is_refused_with_the_allowed_ones() {
        let message = choose_among(&[5], vec![0, 1, 2, 7]).expect_err("outside").to_string();
        assert!(message.contains("CPU 5") && message.contains("0-2,7"), "{message}");
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(parse_list(""), [0_u32; 0]);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_with_those_that_are() {
        let message = check_node(Some(1000)).expect_err("no such node").to_string();
        assert!(message.contains("node 1000") && message.contains("here: 0"), "{message}");
        assert!(check_node(Some(0)).is_ok());
    }
}
