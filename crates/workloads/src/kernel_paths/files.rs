//! Files made and removed, mappings, and faults.

use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{close, unlink, write};

use super::ground::Ground;
use super::rounds::{Failure, Path};
use super::system::{Mapping, handle_by, page_bytes, refused, usage};

/// Files that a round makes or removes.
const FILES: u64 = 100;
/// Mappings of a round.
const MAPPINGS: u64 = 20;
/// Faults on a page that may not be written.
const VIOLATIONS: u64 = 2000;
/// Distance from one byte that is read of a mapping to the next: the kernel maps at least this much around a fault.
const AROUND: usize = 64 << 10;

/// Files of so many bytes made and written.
pub fn create(ground: &Ground, bytes: usize) -> Result<Path, Failure> {
    let (names, content) = (names(ground)?, vec![1_u8; bytes]);
    let again = names.clone();
    Ok(Path::new(FILES, FILES * bytes as u64 + FILES, move || make_all(&names, &content))
        .before(move || remove_all(&again).map(|_| ())))
}

/// The same files removed.
pub fn delete(ground: &Ground, bytes: usize) -> Result<Path, Failure> {
    let (names, content) = (names(ground)?, vec![1_u8; bytes]);
    let again = names.clone();
    Ok(Path::new(FILES, FILES, move || remove_all(&names)).before(move || {
        remove_all(&again)?;
        make_all(&again, &content).map(|_| ())
    }))
}

fn names(ground: &Ground) -> Result<Vec<CString>, String> {
    (0..FILES).map(|number| ground.path(&format!("made-{number}"))).collect()
}

/// Makes files that must not exist yet; returns their number and the bytes written.
fn make_all(names: &[CString], content: &[u8]) -> Result<u64, String> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mut done = 0;
    for name in names {
        let file = open(name.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(refused("open"))?;
        let written = if content.is_empty() { 0 } else { write(&file, content).map_err(refused("write"))? };
        close(file).map_err(refused("close"))?;
        done += 1 + written as u64;
    }
    Ok(done)
}

/// Removes those of the files that exist; returns their number.
fn remove_all(names: &[CString]) -> Result<u64, String> {
    let mut removed = 0;
    for name in names {
        match unlink(name.as_c_str()) {
            Ok(()) => removed += 1,
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(refused("unlink")(errno)),
        }
    }
    Ok(removed)
}

/// A file in memory mapped, one byte of every 64 KiB read, and unmapped.
pub fn mmap(ground: &Ground) -> Result<Path, Failure> {
    let (file, bytes) = (ground.file()?, ground.bytes);
    Ok(Path::new(MAPPINGS, MAPPINGS * touches(bytes), move || {
        (0..MAPPINGS).map(|_| Ok(touch(Mapping::of_file(&file, bytes)?.bytes()))).sum()
    }))
}

/// The first write to a page of a private mapping of a file that is in memory: the process gets a page of its own. (A
/// read maps the pages around it, too, of a large folio all of them: how many differs by kernel and file system.)
pub fn page_fault(ground: &Ground) -> Result<Path, Failure> {
    let (file, bytes) = (ground.file()?, ground.bytes);
    let pages = bytes.div_ceil(page_bytes()) as u64;
    let mapping = Rc::new(RefCell::new(Mapping::to_copy(&file, bytes)?));
    let renewed = mapping.clone();
    Ok(Path::new(pages, pages, move || {
        let before = usage()?.faults;
        mapping.borrow_mut().write_each(page_bytes(), 2);
        Ok((usage()?.faults - before).min(pages))
    })
    .before(move || {
        *renewed.borrow_mut() = Mapping::to_copy(&file, bytes)?;
        Ok(())
    }))
}

fn touches(bytes: usize) -> u64 {
    bytes.div_ceil(AROUND) as u64
}

/// The sum of the bytes read, which are ones.
fn touch(bytes: &[u8]) -> u64 {
    std::hint::black_box(bytes).iter().step_by(AROUND).map(|&byte| u64::from(byte)).sum()
}

/// Violations that were handled.
static VIOLATED: AtomicU64 = AtomicU64::new(0);

/// A store to a page that may only be read, and the signal for it; the handler goes on behind the store.
pub fn protection_fault(_: &Ground) -> Result<Path, Failure> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err(Failure::Impossible("stores of this processor are not known to the program".to_owned()));
    }
    let page = Mapping::read_only_page()?;
    Ok(Path::new(VIOLATIONS, VIOLATIONS, move || {
        let before = handle_violations()?;
        let counted = VIOLATED.load(Relaxed);
        for _ in 0..VIOLATIONS {
            // SAFETY: the store faults, and the handler skips it: no memory changes.
            unsafe { store(page.start()) };
        }
        // SAFETY: the action that was there.
        unsafe { libc::sigaction(libc::SIGSEGV, &before, std::ptr::null_mut()) };
        Ok(VIOLATED.load(Relaxed) - counted)
    }))
}

/// Installs [`skip`]; returns the action before it.
fn handle_violations() -> Result<libc::sigaction, String> {
    // SAFETY: the handler has the type that SA_SIGINFO asks for, and changes a number and the registers of a store.
    unsafe { handle_by(libc::SIGSEGV, skip as *const () as libc::sighandler_t, libc::SA_SIGINFO) }
}

/// A store of one known length.
///
/// # Safety
/// The address may be written, or the instruction is skipped.
#[inline(never)]
unsafe fn store(at: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the caller.
    unsafe {
        std::arch::asm!("mov [rax], al", in("rax") at, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by the caller.
    unsafe {
        std::arch::asm!("strb wzr, [x0]", in("x0") at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Goes on behind the instruction that faulted, which is [`store`]'s: two bytes on x86-64, four on AArch64. A fault
/// elsewhere is repeated for ever without this, so it ends the process.
extern "C" fn skip(_: libc::c_int, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's own description of the fault, and the registers, which are set when the handler returns.
    unsafe {
        if (*information).si_code != SEGV_ACCERR {
            libc::_exit(139);
        }
        let context = context.cast::<libc::ucontext_t>();
        #[cfg(target_arch = "x86_64")]
        {
            (*context).uc_mcontext.gregs[libc::REG_RIP as usize] += 2;
        }
        #[cfg(target_arch = "aarch64")]
        {
            (*context).uc_mcontext.pc += 4;
        }
        let _ = context;
    }
    VIOLATED.fetch_add(1, Relaxed);
}

/// `si_code` of a fault by the rights of a mapping.
const SEGV_ACCERR: libc::c_int = 2;
