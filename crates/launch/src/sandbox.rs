//! Whether a refusal comes from a sandbox: seccomp filters and containers refuse what the kernel would allow.

use std::fs;
use std::path::Path;

/// The sandboxes around this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// A seccomp filter is in force.
    pub seccomp: bool,
    /// Signs of a container.
    pub container: bool,
}

/// Looks at /proc and the usual marks of containers.
pub fn detect() -> Sandbox {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let marked = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
    Sandbox { seccomp: has_seccomp_filter(&status), container: marked || std::env::var_os("container").is_some() }
}

fn has_seccomp_filter(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// A clause to append to a message about `error`; empty when no sandbox explains it.
pub fn hint(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => clause(detect()).to_owned(),
        _ => String::new(),
    }
}

fn clause(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox { seccomp: true, container: true } => {
            " (a seccomp filter of the container may refuse this call; run: pagelab doctor --print docker)"
        }
        Sandbox { seccomp: true, container: false } => {
            " (a seccomp filter is in force and may refuse this call; run: grep Seccomp /proc/self/status)"
        }
        Sandbox { container: true, .. } => " (in a container: run: pagelab doctor --print docker)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_seen_and_strict_mode_is_not_a_filter() {
        assert!(has_seccomp_filter("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_seccomp_filter("Seccomp:\t0\nSeccomp_filters:\t2\n"));
    }
}
