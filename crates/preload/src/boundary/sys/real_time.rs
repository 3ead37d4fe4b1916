//! System calls about scheduling: of real-time programs, and of the threads that answer their faults.

use crate::boundary::arch::nr;

use super::c;
use super::call::{Errno, Result, calls};

/// The highest priority of SCHED_FIFO and SCHED_RR.
pub const HIGHEST: i32 = 99;
const SCHED_OTHER: i32 = 0;
const SCHED_FIFO: i32 = 1;

calls! {
    fn getparam(tid: u32, priority: &mut i32) -> () { nr::SCHED_GETPARAM; tid, priority }

    fn setscheduler(tid: u32, policy: i32, priority: &i32) -> () { nr::SCHED_SETSCHEDULER; tid, policy, priority }

    fn seek(fd: i32, offset: usize, from: i32) -> usize { nr::LSEEK; fd, offset, from }

    fn getdents(fd: i32, into: &mut [u8]) -> usize { nr::GETDENTS64; fd, into }

    // Signal 0: nothing is sent.
    fn tgkill(process: u32, tid: u32, signal: i32) -> () { nr::TGKILL; process, tid, signal }
}

calls! { unsafe:
    /// sched_setscheduler(2) with the program's own arguments.
    ///
    /// # Safety
    /// The program makes the call.
    pub fn set_scheduler(tid: i32, policy: i32, parameters: usize) -> usize {
        nr::SCHED_SETSCHEDULER; tid, policy, parameters
    }

    /// sched_setparam(2) with the program's own arguments.
    ///
    /// # Safety
    /// The program makes the call.
    pub fn set_parameters(tid: i32, parameters: usize) -> usize { nr::SCHED_SETPARAM; tid, parameters }

    /// sched_setattr(2) with the program's own arguments.
    ///
    /// # Safety
    /// The program makes the call.
    pub fn set_attributes(tid: i32, attributes: usize, flags: u32) -> usize {
        nr::SCHED_SETATTR; tid, attributes, flags
    }
}

/// The real-time priority of thread `tid` (0: the caller); 0: it has none.
pub fn priority(tid: u32) -> i32 {
    let mut priority = 0;
    if getparam(tid, &mut priority).is_ok() { priority } else { 0 }
}

/// Puts thread `tid` (0: the caller) under SCHED_FIFO.
pub fn become_real_time(tid: u32, priority: i32) -> Result<()> {
    setscheduler(tid, SCHED_FIFO, &priority)
}

/// Puts thread `tid` (0: the caller) under SCHED_OTHER.
pub fn become_ordinary(tid: u32) -> Result<()> {
    setscheduler(tid, SCHED_OTHER, &0)
}

/// Opens the list of this process's threads, for [`highest`].
pub fn open_list() -> Result<i32> {
    super::open(c"/proc/self/task", c::O_RDONLY, 0)
}

/// The highest real-time priority of the threads in `list`, except those in `besides`; 0: none has one. ESRCH: the list
/// is of another pid namespace.
pub fn highest(list: i32, besides: &[u32]) -> Result<i32> {
    let own = super::gettid();
    let (mut entries, mut highest, mut is_ours) = ([0u8; 1024], 0, false);
    seek(list, 0, 0)?;
    loop {
        match getdents(list, &mut entries)? {
            0 => return if is_ours { Ok(highest) } else { Err(Errno::ESRCH) },
            used => each_number(entries.get(..used).unwrap_or(&[]), &mut |tid| {
                is_ours |= tid == own;
                if !besides.contains(&tid) {
                    highest = highest.max(priority(tid));
                }
            }),
        }
    }
}

/// Calls `visit` for each name that is a number in entries of getdents64(2): 8 bytes, 8 bytes, length (2), type (1), name.
fn each_number(mut entries: &[u8], visit: &mut dyn FnMut(u32)) {
    while let Some(&[low, high]) = entries.get(16..18) {
        let length = usize::from(u16::from_le_bytes([low, high]));
        let name = entries.get(19..length).unwrap_or(&[]);
        let digits = name.iter().take_while(|byte| **byte != 0);
        let number = digits
            .copied()
            .try_fold(0u32, |number, byte| number.checked_mul(10)?.checked_add((byte as char).to_digit(10)?));
        if let Some(tid) = number.filter(|tid| *tid != 0) {
            visit(tid);
        }
        entries = entries.get(length.max(1)..).unwrap_or(&[]);
    }
}

/// Whether `tid` is a thread of this process.
pub fn is_of_this_process(tid: u32) -> bool {
    tgkill(super::getpid(), tid, 0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_in_the_kernels_list() {
        let entry = |name: &[u8], length: u8| {
            let mut bytes = vec![0u8; usize::from(length)];
            bytes[16] = length;
            bytes[19..19 + name.len()].copy_from_slice(name);
            bytes
        };
        let entries = [entry(b".", 24), entry(b"..", 24), entry(b"8", 24), entry(b"4194304", 32)].concat();
        let mut found = vec![];
        each_number(&entries, &mut |tid| found.push(tid));
        assert_eq!(found, [8, 4_194_304]);
        // Cut off, or with a length of 0: no endless loop.
        each_number(&entries[..40], &mut |_| {});
        each_number(&[0; 64], &mut |_| {});
        // Not a number of 32 bits.
        each_number(&entry(b"99999999999", 32), &mut |tid| panic!("{tid}"));
        let list = open_list().unwrap();
        assert_eq!([(); 2].map(|()| highest(list, &[])), [Ok(0); 2], "the tests are no real-time program");
    }
}
