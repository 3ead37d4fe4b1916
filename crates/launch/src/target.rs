//! The binary that the kernel will execute, and whether the library can be loaded into it.

use crate::elf::{self, Elf};
use crate::error::{Error, Result};
use crate::sys;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The program of a run.
#[derive(Debug)]
pub struct Target {
    /// The file given to execve.
    pub path: PathBuf,
    /// The binary that the kernel starts: `path`, or the interpreter at the end of its `#!` chain.
    pub binary: PathBuf,
    /// Facts from the binary.
    pub elf: Elf,
    /// Why the library cannot be loaded into the binary; None when it can.
    pub obstacle: Option<Obstacle>,
}

/// Why the library cannot be loaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No dynamic loader, so no LD_PRELOAD.
    Static,
    /// Go calls the kernel itself, past libc, even when linked dynamically.
    Go,
    /// The C library is not glibc.
    Musl,
    /// Another machine or word size than the library's.
    Foreign,
}

impl Obstacle {
    /// The reason, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Obstacle::Static => "it is statically linked, so no library can be loaded into it",
            Obstacle::Go => "it is a Go program, and Go maps memory by its own system calls, past libc",
            Obstacle::Musl => "it uses musl instead of glibc, whose entry points pagelab governs",
            Obstacle::Foreign => "it is for another processor or word size than pagelab's library",
        }
    }

    /// What the user may do about it. Frames need no library where the kernel has page placement.
    pub fn advice(self, about_frames: bool) -> String {
        let without = self.without_frames();
        if about_frames {
            return format!("{without}, or on a kernel with page placement (kernel/README.md): --backend kernel");
        }
        without.to_owned()
    }

    fn without_frames(self) -> &'static str {
        match self {
            Obstacle::Static => {
                "link it dynamically, or run it with all axes left to the kernel: pagelab run --no-preload"
            }
            Obstacle::Musl => {
                "build it for glibc, or run it with all axes left to the kernel: pagelab run --no-preload"
            }
            Obstacle::Go | Obstacle::Foreign => "run it with all axes left to the kernel: pagelab run --no-preload",
        }
    }
}

/// The kernel follows at most this many interpreters of scripts.
const SCRIPT_DEPTH: usize = 5;
/// The kernel reads this much of a file's first line.
const SCRIPT_LINE: usize = 256;

/// Finds out what execve of `program` will start. `path` is the PATH of the program's environment, `cwd` its directory.
pub fn resolve(program: &str, path: Option<&OsStr>, cwd: &Path) -> Result<Target> {
    let found = find(program, path, cwd)?;
    let mut binary = found.clone();
    for _ in 0..=SCRIPT_DEPTH {
        refuse_privileged(&binary)?;
        let mut file = open(&binary)?;
        if let Some(interpreter) = script_interpreter(&mut file, &binary)? {
            binary = cwd.join(interpreter);
            continue;
        }
        let elf = elf::inspect(&file).ok_or_else(|| not_a_program(&binary))?;
        let obstacle = obstacle(&elf);
        return Ok(Target { path: found, binary, elf, obstacle });
    }
    Err(Error::BadInput(format!(
        "{} names a script whose interpreters are themselves scripts, too deep",
        found.display()
    )))
}

fn not_a_program(path: &Path) -> Error {
    Error::BadInput(format!(
        "cannot run {}: it is neither an ELF program nor a script with a #! line; run: pagelab run -- sh {}",
        path.display(),
        path.display()
    ))
}

fn open(path: &Path) -> Result<File> {
    sys::files::open_regular(path).map_err(|error| {
        Error::BadInput(format!(
            "cannot read {} to see what kind of program it is: {}; run: ls -l {}",
            path.display(),
            sys::errno_text(&error),
            path.display()
        ))
    })
}

/// The lookup of execvp(3): names with a slash as they are, others along PATH.
fn find(program: &str, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf> {
    if program.contains('/') {
        let found = cwd.join(program);
        return match found.metadata() {
            Ok(data) if data.is_dir() => Err(Error::BadInput(format!("cannot run {program}: it is a directory"))),
            Ok(data) if !data.is_file() => Err(Error::BadInput(format!(
                "cannot run {program}: it is not a regular file; run: ls -l {program}"
            ))),
            Ok(data) if data.permissions().mode() & 0o111 == 0 => {
                Err(Error::BadInput(format!("cannot run {program}: it is not executable; run: chmod +x {program}")))
            }
            Ok(_) => Ok(found),
            Err(error) => Err(Error::BadInput(format!("cannot run {program}: {}", sys::errno_text(&error)))),
        };
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let candidates = path.as_bytes().split(|&byte| byte == b':').map(|directory| {
        let directory = if directory.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(directory)) };
        cwd.join(directory).join(program)
    });
    let runnable = |candidate: &PathBuf| {
        candidate.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    candidates.into_iter().find(runnable).ok_or_else(|| {
        Error::BadInput(format!(
            "cannot find {program} in PATH ({}); run: command -v {program}",
            path.to_string_lossy()
        ))
    })
}

fn script_interpreter(file: &mut File, path: &Path) -> Result<Option<PathBuf>> {
    let mut start = Vec::new();
    file.take(SCRIPT_LINE as u64)
        .read_to_end(&mut start)
        .map_err(|error| Error::BadInput(format!("cannot read {}: {}", path.display(), sys::errno_text(&error))))?;
    let Some(line) = start.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let interpreter = line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    if interpreter.is_empty() {
        return Err(not_a_program(path));
    }
    Ok(Some(PathBuf::from(OsStr::from_bytes(interpreter))))
}

/// A program that gains rights at exec ignores LD_PRELOAD, loses its counters, and must not be steered by others.
fn refuse_privileged(path: &Path) -> Result<()> {
    let mode = path.metadata().map_or(0, |data| data.mode());
    let what = if mode & libc_mode::SETUID != 0 {
        "is setuid"
    } else if mode & libc_mode::SETGID != 0 && mode & 0o010 != 0 {
        "is setgid"
    } else if sys::files::has_attribute(path, "security.capability") {
        "has file capabilities"
    } else {
        return Ok(());
    };
    Err(Error::Cannot(format!(
        "will not run {}: it {what}, and the kernel ignores LD_PRELOAD and ends counters for such programs; \
         run a copy without the privilege: cp {} /tmp/ && pagelab run -- /tmp/{}",
        path.display(),
        path.display(),
        path.file_name().unwrap_or_default().to_string_lossy()
    )))
}

mod libc_mode {
    pub const SETUID: u32 = 0o4000;
    pub const SETGID: u32 = 0o2000;
}

fn obstacle(elf: &Elf) -> Option<Obstacle> {
    let own = if cfg!(target_arch = "x86_64") { elf::X86_64 } else { elf::AARCH64 };
    if !elf.is_64_bit || elf.machine != own {
        Some(Obstacle::Foreign)
    } else if elf.is_go {
        Some(Obstacle::Go)
    } else if is_musl(elf) {
        Some(Obstacle::Musl)
    } else if elf.interpreter.is_none() {
        Some(Obstacle::Static)
    } else {
        None
    }
}

fn is_musl(elf: &Elf) -> bool {
    let loader = elf.interpreter.as_deref().unwrap_or_default();
    loader.contains("ld-musl") || elf.needed.iter().any(|name| name.starts_with("libc.musl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_along_path_and_can_be_governed() {
        let target = resolve("sh", Some(OsStr::new("/nonexistent::/usr/bin:/bin")), Path::new("/")).expect("sh");
        assert!(target.path.ends_with("bin/sh"), "{:?}", target.path);
        assert_eq!(target.obstacle, None);
    }

    #[test]
    fn what_cannot_run_is_named_with_the_next_command() {
        for (program, expected) in [
            ("no-such-program", "command -v no-such-program"),
            ("/etc/passwd", "chmod +x"),
            ("/tmp", "directory"),
            ("/no/such/file", "ENOENT"),
        ] {
            let message = resolve(program, None, Path::new("/")).expect_err(program).to_string();
            assert!(message.contains(expected), "{program}: {message}");
        }
    }
}
