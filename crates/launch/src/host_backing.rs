//! Free memory that the host of a virtual machine has taken back, backed again before a program starts.
//!
//! With free page reporting, a guest's kernel reports free blocks to its host some seconds after they became free, and
//! the host takes them away. Their next touch is a fault in the host: on one such machine, 4.2 ms instead of 0.17 ms
//! for each 2 MiB page. Whether a program pays for it depends on how long the machine was idle before.

use crate::sys::memory::Words;
use crate::sys::signals;
use crate::sys::user::drop_capabilities;
use crate::warnings::{Kind, Severity, Warnings};
use crate::{cgroup, guard, sys};
use serde_json::json;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Words of a base page.
const PAGE_WORDS: usize = 512;
/// Short compared with the time that touching takes, long compared with a check.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Free memory that is left alone: the kernel's reserves, and what starting a program takes.
const LEFT_BYTES: u64 = 256 << 20;

/// Makes a process that touches `asked` bytes of free memory and frees them again, fewer if fewer are free; returns how
/// many, if any. They are touched in the sizes that the program's pages may have (huge, smaller): free blocks of each
/// are in lists of their own.
///
/// It is a separate process: its peak is in no account of the launcher, and it is the one that ends if memory runs out.
pub fn back(asked: Option<u64>, (huge, small): (bool, bool), warnings: &mut Warnings) -> Option<u64> {
    // No file leaves the page cache for it, the group's neither.
    let of_group = cgroup::free_memory().unwrap_or(u64::MAX);
    let bytes = asked?.min(free_bytes().unwrap_or(0).min(of_group).saturating_sub(LEFT_BYTES));
    if bytes == 0 {
        return None;
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["--touch", &bytes.to_string()]);
    command.args([(huge, "huge"), (small, "small")].iter().filter(|(may, _)| *may).map(|(_, word)| word));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = match command.spawn().and_then(wait) {
        Ok(status) if status.success() => return Some(bytes),
        Ok(status) => status.to_string(),
        Err(error) => sys::errno_text(&error),
    };
    let message = format!(
        "{} of free memory could not be touched before the program started ({why}): the host may have to back the \
         program's pages while it runs",
        crate::words::size(bytes)
    );
    warnings.add(Kind::HostNotBacked, Severity::Info, message, json!({"bytes": bytes, "reason": why}));
    None
}

/// Waits for the end; a launcher that is asked to end does not wait.
fn wait(mut child: Child) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if signals::is_asked_to_end() {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Touches so many bytes in pages of each of the sizes (`huge`, `small`).
pub fn touch(bytes: u64, sizes: &[&str]) -> io::Result<()> {
    guard::end_with_caller();
    drop_capabilities()?;
    // The kernel must not end another program instead.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    for &size in sizes {
        let mut words = Words::map(bytes, size == "huge")?;
        words.as_slice().iter_mut().step_by(PAGE_WORDS).for_each(|word| *word = 1);
    }
    Ok(())
}

fn free_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_touched_unless_asked_for() {
        let mut warnings = Warnings::default();
        assert_eq!([None, Some(0)].map(|asked| back(asked, (true, true), &mut warnings)), [None, None]);
        assert!(warnings.0.is_empty());
    }

    #[test]
    fn free_memory_is_read() {
        assert!(free_bytes().is_some_and(|bytes| bytes > 0 && bytes % 1024 == 0));
    }
}
