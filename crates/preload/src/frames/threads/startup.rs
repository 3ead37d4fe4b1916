//! The engine's start, when it is first needed.

use core::sync::atomic::{AtomicBool, Ordering};

use pagelab_abi::guest::{EngineFailure, EngineState};

use crate::boundary::{libc, sys};
use crate::frames::kernel::rights::Stop;
use crate::frames::report::tally;
use crate::frames::running::{self, GONE, IDLE, RUNNING, is_running};
use crate::state::guest_file;
use crate::state::lock::Turn;
use crate::state::message::say;

use super::handler;

/// Whether the engine must not be started.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Forbids the start: LeakSanitizer's runtime, which is in the program, stops all threads and then reads the program's
/// memory, and nobody could answer its faults.
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// One start at a time.
static TURN: Turn = Turn::new();
/// Whether this process was forked.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Starts the engine for the program's own hints, whatever the plan says. Returns whether it runs.
pub fn start_now() -> bool {
    running::want();
    is_ready()
}

/// Starts the engine, if that was not tried yet. Returns whether it runs.
pub fn is_ready() -> bool {
    match running::state() {
        RUNNING => true,
        // A process that was made past libc may end by the system call that ends its only thread; threads of the
        // library would keep it alive.
        IDLE if !libc::knows_this_thread() => false,
        IDLE => {
            let mask = sys::block_signals();
            TURN.take();
            if running::state() == IDLE {
                start();
            }
            TURN.give();
            sys::restore_signals(mask);
            is_running()
        }
        _ => false,
    }
}

fn start() {
    if let Some(file) = guest_file::file() {
        guest_file::set(&file.engine.start_ns, sys::monotonic_ns());
    }
    let begun = if FORBIDDEN.load(Ordering::Relaxed) {
        Err(Stop { failure: EngineFailure::Sanitizer, errno: None })
    } else {
        handler::begin()
    };
    match begun {
        Ok(()) => {
            tally::state(EngineState::Running);
            running::set_state(RUNNING);
        }
        Err(stop) => {
            tally::failed(EngineState::Failed, stop.failure, stop.errno);
            // The record contains the failure, and the launcher prints it; standard error belongs to the program.
            if guest_file::file().is_none() && !IS_CHILD.load(Ordering::Relaxed) {
                let errno = stop.errno.map_or(0, |errno| errno.0);
                say(format_args!("no frames are placed in this process: {} (errno {errno})", stop.failure.name()));
            }
            running::set_state(GONE);
        }
    }
}

/// In a forked child: forgets a start by a thread of the parent.
pub fn forget() {
    IS_CHILD.store(true, Ordering::Relaxed);
    TURN.give();
}
