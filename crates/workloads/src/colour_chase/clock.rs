//! A clock with the resolution of a few loads.

use std::hint::black_box;
use std::time::Instant;

use crate::clock::time_stamp;

/// Times a few loads in nanoseconds.
pub struct Clock {
    /// Nanoseconds in a tick.
    tick_ns: f64,
}

impl Clock {
    /// Calibrates the counter against the system's clock (a few milliseconds).
    pub fn calibrate() -> Self {
        let (start, ticks) = (Instant::now(), time_stamp());
        while start.elapsed().as_micros() < 4_000 {}
        let passed = time_stamp().wrapping_sub(ticks).max(1);
        Self { tick_ns: start.elapsed().as_nanos() as f64 / passed as f64 }
    }

    /// The time to load the bytes at `start` plus each offset, one load after the other.
    #[inline(never)]
    pub fn loads(&self, memory: &[u8], start: usize, offsets: &[usize]) -> f64 {
        fence();
        let begun = time_stamp();
        for offset in offsets {
            fence();
            black_box(memory[start + offset]);
        }
        fence();
        time_stamp().wrapping_sub(begun) as f64 * self.tick_ns
    }
}

/// Waits until every earlier load has completed.
#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: LFENCE is part of the architecture and touches no memory.
    unsafe { std::arch::x86_64::_mm_lfence() }
}

#[cfg(not(target_arch = "x86_64"))]
fn fence() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
