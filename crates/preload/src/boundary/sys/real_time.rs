//! System calls about scheduling: of real-time programs, and of the threads that answer their faults.

use crate::boundary::arch::nr;

use super::call::{Result, calls};

/// The highest priority of SCHED_FIFO and SCHED_RR.
pub const HIGHEST: i32 = 99;
const SCHED_FIFO: i32 = 1;

calls! {
    fn getparam(tid: u32, priority: &mut i32) -> () { nr::SCHED_GETPARAM; tid, priority }

    fn setscheduler(tid: u32, policy: i32, priority: &i32) -> () { nr::SCHED_SETSCHEDULER; tid, policy, priority }

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

/// Whether `tid` is a thread of this process.
pub fn is_of_this_process(tid: u32) -> bool {
    tgkill(super::getpid(), tid, 0).is_ok()
}
