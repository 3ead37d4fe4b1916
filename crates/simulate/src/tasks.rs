//! Work shared by several threads.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// A piece of work on which no other piece of the same turn depends.
pub type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Does all tasks with up to `threads` threads, including the caller's. A free thread takes the next task, so long ones
/// should come first.
pub fn run_all(threads: usize, tasks: Vec<Task<'_>>) {
    let more = threads.min(tasks.len()).saturating_sub(1);
    let queue = Mutex::new(tasks.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(task) = next() {
            task();
        }
    };
    thread::scope(|scope| {
        for _ in 0..more {
            scope.spawn(work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_is_done_once_whatever_the_threads() {
        for threads in [0, 1, 2, 5, 40] {
            let mut done = [0; 17];
            let at_once = AtomicUsize::new(0);
            let task = |place: &mut usize| {
                assert!(at_once.fetch_add(1, Ordering::SeqCst) < threads.max(1));
                *place += 1;
                at_once.fetch_sub(1, Ordering::SeqCst);
            };
            let task = &task;
            run_all(threads, done.iter_mut().map(|place| Box::new(move || task(place)) as Task<'_>).collect());
            assert_eq!(done, [1; 17]);
        }
        run_all(3, vec![]);
    }
}
