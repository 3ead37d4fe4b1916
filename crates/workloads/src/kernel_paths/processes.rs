//! Calls of the kernel, signals, and the making of processes.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{self, Mode};
use nix::unistd::{close, getpid, getppid, gettid};

use super::ground::Ground;
use super::rounds::{Failure, Path};
use super::system::{Child, failed, handle_by, refused};

/// The argument with which the program does nothing: what `exec` and `sh` execute.
pub const NOTHING: &str = "kernel-paths-nothing";
/// And then its exit status.
pub const NOTHING_STATUS: u8 = 77;

/// Calls in a round that take well below a microsecond.
const CALLS: u64 = 5000;
/// Processes that a round makes by fork, and by executing a program.
const FORKS: u64 = 20;
const EXECUTIONS: u64 = 5;
const SHELL: &str = "/bin/sh";

/// The number of the parent process, which no library answers without a system call.
pub fn null_call(_: &Ground) -> Result<Path, Failure> {
    let parent = || getppid().as_raw() as u64;
    Ok(Path::new(CALLS, CALLS * parent(), move || Ok((0..CALLS).map(|_| parent()).sum())))
}

/// A byte read from /dev/zero, or written to /dev/null: the mean of both.
pub fn null_io(_: &Ground) -> Result<Path, Failure> {
    let open = |name: &str, write: bool| {
        let opened = std::fs::OpenOptions::new().read(!write).write(write).open(name);
        opened.map_err(|error| Failure::Impossible(format!("cannot open {name}: {error}")))
    };
    let (mut zero, mut null) = (open("/dev/zero", false)?, open("/dev/null", true)?);
    Ok(Path::new(CALLS, CALLS, move || {
        let mut byte = [1_u8];
        let mut moved = 0;
        for _ in 0..CALLS / 2 {
            moved += std::io::Read::read(&mut zero, &mut byte).map_err(|error| format!("read: {error}"))?;
            moved += std::io::Write::write(&mut null, &byte).map_err(|error| format!("write: {error}"))?;
        }
        Ok(moved as u64 + u64::from(byte[0]))
    }))
}

/// The attributes of a file, by its path.
pub fn stat(ground: &Ground) -> Result<Path, Failure> {
    const BYTES: u64 = 3;
    let path = small_file(ground, BYTES as usize)?;
    Ok(Path::new(CALLS, CALLS * BYTES, move || {
        let mut bytes = 0;
        for _ in 0..CALLS {
            bytes += stat::stat(path.as_c_str()).map_err(refused("stat"))?.st_size as u64;
        }
        Ok(bytes)
    }))
}

/// A file opened and closed.
pub fn open_close(ground: &Ground) -> Result<Path, Failure> {
    const OPENED: u64 = CALLS / 2;
    let path = small_file(ground, 1)?;
    Ok(Path::new(OPENED, OPENED, move || {
        for _ in 0..OPENED {
            let file = open(path.as_c_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
            file.and_then(close).map_err(refused("open or close"))?;
        }
        Ok(OPENED)
    }))
}

fn small_file(ground: &Ground, bytes: usize) -> Result<CString, String> {
    let path = ground.directory.join("small");
    std::fs::write(&path, vec![1_u8; bytes])
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    ground.path("small")
}

/// Signals that were handled.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: libc::c_int) {
    HANDLED.fetch_add(1, Relaxed);
}

/// A second function, to have two.
extern "C" fn handle_otherwise(_: libc::c_int) {
    HANDLED.fetch_add(2, Relaxed);
}

/// Sets the action for SIGUSR1; returns the previous one, as an address.
fn install(handler: libc::sighandler_t) -> Result<libc::sighandler_t, String> {
    // SAFETY: both handlers add to an atomic number alone.
    Ok(unsafe { handle_by(libc::SIGUSR1, handler, 0) }?.sa_sigaction)
}

fn address(handler: extern "C" fn(libc::c_int)) -> libc::sighandler_t {
    handler as *const () as libc::sighandler_t
}

/// A function installed for a signal, each time another than before.
pub fn signal_install(_: &Ground) -> Result<Path, Failure> {
    let both = [address(handle), address(handle_otherwise)];
    install(both[1])?;
    Ok(Path::new(CALLS, CALLS, move || {
        let mut replaced = 0;
        for call in 0..CALLS as usize {
            replaced += u64::from(install(both[call % 2])? == both[(call + 1) % 2]);
        }
        Ok(replaced)
    }))
}

/// A signal that the thread sends itself, and its handler.
pub fn signal_handle(_: &Ground) -> Result<Path, Failure> {
    const SIGNALS: u64 = CALLS / 2;
    install(address(handle))?;
    let (process, thread) = (getpid().as_raw(), gettid().as_raw());
    Ok(Path::new(SIGNALS, SIGNALS, move || {
        let before = HANDLED.load(Relaxed);
        for _ in 0..SIGNALS {
            // SAFETY: a signal for which a function is installed. It runs before the call returns.
            if unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) } != 0 {
                return Err(failed("tgkill"));
            }
        }
        Ok(HANDLED.load(Relaxed) - before)
    }))
}

/// A copy of this process, which exits, and is waited for.
pub fn fork(_: &Ground) -> Result<Path, Failure> {
    const STATUS: i32 = 3;
    Ok(Path::new(FORKS, FORKS * STATUS as u64, || {
        let mut statuses = 0;
        for _ in 0..FORKS {
            statuses += Child::fork(|| STATUS)?.wait()? as u64;
        }
        Ok(statuses)
    }))
}

/// The same, where the copy executes a program that does nothing.
pub fn exec(_: &Ground) -> Result<Path, Failure> {
    let own = own_program()?;
    let words = vec![own.clone(), word(NOTHING)];
    Ok(executing(own, words))
}

/// The same, by a shell.
pub fn sh(_: &Ground) -> Result<Path, Failure> {
    if let Err(error) = std::fs::metadata(SHELL) {
        return Err(Failure::Impossible(format!("there is no {SHELL}: {error}")));
    }
    // The program is a word of its own: whatever its path contains, the shell does not read it.
    let line = word(r#""$0" "$1""#);
    Ok(executing(word(SHELL), vec![word("sh"), word("-c"), line, own_program()?, word(NOTHING)]))
}

fn executing(program: CString, words: Vec<CString>) -> Path {
    Path::new(EXECUTIONS, EXECUTIONS * u64::from(NOTHING_STATUS), move || {
        let mut statuses = 0;
        for _ in 0..EXECUTIONS {
            statuses += Child::execute(&program, &words)?.wait()? as u64;
        }
        Ok(statuses)
    })
}

fn own_program() -> Result<CString, String> {
    let path = std::env::current_exe().map_err(|error| format!("cannot find the own program: {error}"))?;
    CString::new(path.into_os_string().into_vec()).map_err(|error| error.to_string())
}

/// A word of a command; none here has a zero byte in it.
pub fn word(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
