//! Programs that change the scheduling of their threads. The threads that answer their faults must stay above them.
//! (libc's `pthread_setschedparam` and `pthread_setschedprio` call the functions that are detoured here.)

use crate::backing;
use crate::boundary::sys::{Result, real_time};
use crate::state::{child, own_stack, seccomp};

/// sched_setscheduler(2).
pub fn set_scheduler(tid: i32, policy: i32, parameters: usize) -> Result<usize> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    followed(tid, unsafe { real_time::set_scheduler(tid, policy, parameters) })
}

/// sched_setparam(2).
pub fn set_parameters(tid: i32, parameters: usize) -> Result<usize> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    followed(tid, unsafe { real_time::set_parameters(tid, parameters) })
}

/// sched_setattr(2).
pub fn set_attributes(tid: i32, attributes: usize, flags: u32) -> Result<usize> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    followed(tid, unsafe { real_time::set_attributes(tid, attributes, flags) })
}

fn followed(tid: i32, result: Result<usize>) -> Result<usize> {
    // A child of vfork shares the library's data, but its threads are not this process's.
    if result.is_ok() && !seccomp::is_raw() && !child::is_new() && !child::is_guest() {
        own_stack::run(|| backing::follow_priority(tid));
    }
    result
}
