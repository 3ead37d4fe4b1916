//! Forked processes, and programs that they execute.
//!
//! The emulator's fork copies the emulator with the plugin, so that a child continues as an image of its own. But its
//! exec passes the new program to the kernel, which runs it natively. So the plugin itself executes the emulator anew
//! before that, with the same arguments in front of the program's.

use crate::api::{CurrentVcpu, Id};
use crate::config::{HANDED_ON, Window, shared};
use crate::state::{self, INSTRUCTIONS};
use crate::{channel, elf};
use pagelab_trace::capture::protocol::{BlockKind, End, MARKER};
use rustix::fs::{Access, access};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Numbers of system calls in a guest architecture.
struct Calls {
    execve: i64,
    execveat: i64,
    close: i64,
    close_range: i64,
    dup2: Option<i64>,
    dup3: i64,
    prctl: i64,
}

const X86_64: Calls =
    Calls { execve: 59, execveat: 322, close: 3, close_range: 436, dup2: Some(33), dup3: 292, prctl: 157 };
const GENERIC: Calls =
    Calls { execve: 221, execveat: 281, close: 57, close_range: 436, dup2: None, dup3: 24, prctl: 167 };

fn calls() -> &'static Calls {
    if shared().target == "x86_64" { &X86_64 } else { &GENERIC }
}

/// Registers with libc the functions that it calls around forks.
pub fn watch_forks() {
    // SAFETY: the handlers are functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
}

thread_local! {
    static HELD: RefCell<Option<std::sync::MutexGuard<'static, channel::Channel>>> = const { RefCell::new(None) };
    /// The vCPU of this thread, once it has made a system call.
    static CALLER: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn before_fork() {
    let mut held = channel::lock();
    if !is_left_out() {
        state::send_all(&mut held);
        channel::announce(&mut held);
    }
    HELD.set(Some(held));
}

extern "C" fn after_fork() {
    HELD.with_borrow_mut(Option::take);
}

/// Set in forked children.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process is a forked child that is not to be followed: it sends nothing.
pub fn is_left_out() -> bool {
    FORKED.load(Relaxed) && !shared().config.children
}

extern "C" fn in_child() {
    FORKED.store(true, Relaxed);
    // SAFETY: a forked child has one thread, this one.
    unsafe { state::forget_all(CALLER.get()) };
    channel::begin_image(-1);
    HELD.with_borrow_mut(|held| {
        if is_left_out() {
            state::set_active(false);
            channel::stay_unknown();
        } else if let Some(channel) = held {
            channel::announce(channel);
        }
        *held = None;
    });
}

/// Before each system call of the guest.
pub extern "C" fn system_call(
    _id: Id,
    mut vcpu: CurrentVcpu,
    number: i64,
    first: u64,
    second: u64,
    third: u64,
    _fourth: u64,
    _fifth: u64,
    _sixth: u64,
    _seventh: u64,
    _eighth: u64,
) {
    CALLER.set(vcpu.number());
    let calls = calls();
    let ours = channel::descriptor();
    let replaced = if number == calls.close {
        first as i64 as i32 == ours
    } else if number == calls.close_range {
        (first..=second).contains(&(ours.max(0) as u64))
    } else if Some(number) == calls.dup2 || number == calls.dup3 {
        second as i64 as i32 == ours
    } else {
        false
    };
    if replaced && ours >= 0 {
        let _guard = channel::lock();
        channel::drop_connection();
    } else if number == calls.prctl && first & 0xffff_ffff == MARKER && shared().config.window == Window::Marker {
        mark(second != 0);
    } else if number == calls.execve && !is_left_out() {
        // The guest's addresses are the host's: guests of the host's word size have no offset.
        execute(first, second, third);
    } else if number == calls.execveat && !is_left_out() {
        note("execveat: the program is executed natively, its references are not in the trace");
    }
    // Any system call may wake another thread, and may wait for one.
    let mut thread = state::thread(&mut vcpu);
    thread.lets_go();
    thread.may_have_waited();
}

fn mark(on: bool) {
    if is_left_out() {
        return;
    }
    let was = state::set_active(on);
    if was && !on && shared().config.quit {
        state::quit();
    }
}

/// Tells of what is not followed. It may be what follows here: the references until then are sent before.
fn note(text: &str) {
    let mut channel = channel::lock();
    state::send_all(&mut channel);
    channel::send_locked(&mut channel, BlockKind::Note, text.as_bytes());
}

/// The file of the emulated program.
static PROGRAM: OnceLock<CString> = OnceLock::new();

/// Finds out which file is emulated, while the working directory is still the one in which it was named.
pub fn remember_program() {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut behind = line.split(|byte| *byte == 0).skip_while(|word| *word != OPTION_NAME.to_bytes()).skip(2);
    if let Some(word) = behind.next()
        && let Ok(path) = std::fs::canonicalize(OsStr::from_bytes(word))
        && let Ok(path) = CString::new(path.into_os_string().into_vec())
    {
        // It is set once, when the plugin is installed.
        let _ = PROGRAM.set(path);
    }
}

/// The file that the guest means: by these names, the kernel would find the emulator instead of the program.
fn meant(path: CString) -> CString {
    let by_number = format!("/proc/{}/exe", std::process::id());
    let own = [b"/proc/self/exe".as_slice(), b"/proc/thread-self/exe", by_number.as_bytes()];
    PROGRAM.get().filter(|_| own.contains(&path.to_bytes())).cloned().unwrap_or(path)
}

/// A vector of C strings of the guest, copied; none where an address is not readable.
fn strings(mut address: u64) -> Option<Vec<CString>> {
    let mut strings = Vec::new();
    while let Some(word) = read(address) {
        let string = u64::from_ne_bytes(word);
        if string == 0 {
            return Some(strings);
        }
        strings.push(text(string)?);
        address += 8;
    }
    None
}

/// A C string of the guest.
fn text(mut address: u64) -> Option<CString> {
    let mut bytes = Vec::new();
    loop {
        let [byte] = read(address)?;
        if byte == 0 {
            return CString::new(bytes).ok();
        }
        bytes.push(byte);
        address += 1;
    }
}

/// Reads memory of this process that may not exist: the kernel does it, so that a wrong address causes no crash.
fn read<const BYTES: usize>(address: u64) -> Option<[u8; BYTES]> {
    let mut bytes = [0u8; BYTES];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES };
    let remote = libc::iovec { iov_base: ptr::without_provenance_mut(address as usize), iov_len: BYTES };
    // SAFETY: the local vector is valid; the remote one is checked by the kernel.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (got == BYTES as isize).then_some(bytes)
}

/// Executes the emulator with the guest's new program; returns if that fails, and the guest continues natively.
fn execute(path: u64, arguments: u64, environment: u64) {
    let (arguments, environment) = (strings(arguments), strings(environment));
    let (Some(path), Some(arguments), Some(environment)) = (text(path), arguments, environment) else {
        note("exec: its arguments cannot be read; if it succeeds, the program runs natively");
        return;
    };
    let path = meant(path);
    if access(&*path, Access::EXEC_OK).is_err() {
        return;
    }
    let (program, arguments) = match elf::resolve(path.clone(), arguments, &shared().target) {
        Ok(resolved) => resolved,
        Err(reason) => {
            note(&format!(
                "{}: executed natively, its references are not in the trace: {reason}",
                path.to_string_lossy()
            ));
            return;
        }
    };
    let (environment, own) = for_the_program_alone(environment);
    let Some(mut command) = command(&program, &arguments, &own) else {
        note(&format!(
            "{}: executed natively: the emulator's own command line is not readable",
            path.to_string_lossy()
        ));
        return;
    };
    state::send_all(&mut channel::lock());
    let end = End { replaced: 1, instructions: INSTRUCTIONS.load(Relaxed) };
    channel::send(BlockKind::End, &end.encode());
    with_handed_on(&mut command, channel::hand_on());
    exec(&command, &environment);
    channel::drop_connection();
    channel::begin_image(-1);
    note(&format!("{}: cannot execute the emulator for it", path.to_string_lossy()));
}

/// Variables that make pagelab's library govern whatever is loaded with them: they are for the program, not for the
/// emulator.
const FOR_THE_PROGRAM: [&[u8]; 2] = [b"LD_PRELOAD=", b"PAGELAB_PLAN="];

fn is_for_the_program(variable: &[u8]) -> bool {
    FOR_THE_PROGRAM.iter().any(|name| variable.starts_with(name))
}

/// The environment of the emulator, and the variables that it is to set for the program, if the program is governed.
fn for_the_program_alone(environment: Vec<CString>) -> (Vec<CString>, Vec<CString>) {
    let plan = FOR_THE_PROGRAM[1];
    if !environment.iter().any(|variable| variable.to_bytes().starts_with(plan)) {
        return (environment, vec![]);
    }
    environment.into_iter().partition(|variable| !is_for_the_program(variable.to_bytes()))
}

/// The emulator's option before the program's name, behind which the program's file follows.
const OPTION_NAME: &CStr = c"-0";
/// The emulator's option before the plugin and its arguments.
const OPTION_PLUGIN: &CStr = c"-plugin";

/// This emulator's command line up to its program, with these variables set, then the new program.
fn command(program: &CStr, arguments: &[CString], variables: &[CString]) -> Option<Vec<CString>> {
    let own = std::fs::read("/proc/self/cmdline").ok()?;
    let mut words = own.split(|byte| *byte == 0).peekable();
    let mut command: Vec<CString> = Vec::new();
    loop {
        let word = words.next()?;
        if word == OPTION_NAME.to_bytes() {
            break;
        }
        // The variables that earlier programs of this process had set.
        if word == b"-E" && words.next_if(|value| is_for_the_program(value)).is_some() {
            continue;
        }
        command.push(CString::new(word).ok()?);
    }
    for variable in variables {
        command.extend([c"-E".to_owned(), variable.clone()]);
    }
    command.push(OPTION_NAME.to_owned());
    let name = arguments.first().map_or(program, |name| name.as_c_str());
    command.push(name.to_owned());
    command.push(program.to_owned());
    command.extend(arguments.iter().skip(1).cloned());
    Some(command)
}

/// Tells the plugin of the next image which socket is left open for it, in place of the one that was for this image.
fn with_handed_on(command: &mut [CString], socket: RawFd) {
    let plugin = command.iter().position(|word| word.as_c_str() == OPTION_PLUGIN);
    let Some(word) = plugin.and_then(|at| command.get_mut(at + 1)) else { return };
    let socket = format!("{HANDED_ON}={socket}");
    let mut arguments: Vec<_> = word.to_bytes().split(|byte| *byte == b',').collect();
    arguments.retain(|argument| !argument.starts_with(HANDED_ON.as_bytes()));
    arguments.push(socket.as_bytes());
    *word = CString::new(arguments.join(&b',')).expect("made of words without NUL");
}

fn exec(command: &[CString], environment: &[CString]) {
    let vector = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (vector(command), vector(environment));
    // SAFETY: two vectors of C strings that end with a null pointer.
    unsafe { libc::execve(c"/proc/self/exe".as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}
