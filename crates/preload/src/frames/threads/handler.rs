//! The handler: the thread that answers faults.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use pagelab_abi::guest::{EngineFailure, EngineState};
use pagelab_abi::plan::Plan;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::libc;
use crate::boundary::span::page_at;
use crate::boundary::sys::{self, Errno, task};
use crate::frames::engine::{self, ENGINE, Engine};
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::kernel::rights::Stop;
use crate::frames::kernel::uffd::{Message, Uffd};
use crate::frames::kernel::{memory_nodes, rights};
use crate::frames::place::wake::Gathering;
use crate::frames::pool::chunks::Tools;
use crate::frames::report::{census, tally};
use crate::frames::{areas, registrable, rest};
use crate::state::plan;

use super::handler_affinity::{self, Affinity};
use super::requests::{self, Kind};
use super::thread::Thread;
use super::{own_pages, priority, refiller, registration};

static THREAD: Thread = Thread::new();
/// The userfaultfd's number in the handler's table.
static UFFD: AtomicI32 = AtomicI32::new(-1);
static PAGEMAP: AtomicI32 = AtomicI32::new(-1);
/// Progress of the handler's start.
static STAGE: AtomicU32 = AtomicU32::new(BEGUN);
const BEGUN: u32 = 0;
const READY: u32 = 1;
const FAILED: u32 = 2;
/// Why the start failed: [`EngineFailure`] code, and errno or 0.
static FAILURE: AtomicU32 = AtomicU32::new(0);
static ERRNO: AtomicI32 = AtomicI32::new(0);
/// No descriptor.
const NONE: i32 = -1;
/// Whether the handler may lock memory beyond the limit, since the program may.
static KEEPS_LOCK: AtomicBool = AtomicBool::new(false);

/// Whether no second thread may do the handler's work, since that thread would keep the right to lock memory while it
/// sleeps.
pub fn works_alone() -> bool {
    KEEPS_LOCK.load(Ordering::Relaxed)
}

/// Gives up the handler's right to lock memory, if the program has given up its own.
fn follow_rights() {
    if KEEPS_LOCK.load(Ordering::Relaxed) && !task::may_lock_beyond_limit(sys::getpid()) {
        task::give_up_capabilities();
        KEEPS_LOCK.store(false, Ordering::Relaxed);
    }
}

/// Messages read at a time.
const AT_ONCE: usize = 32;

fn stop(failure: EngineFailure) -> impl Fn(Errno) -> Stop {
    move |errno| Stop { failure, errno: Some(errno) }
}

/// Id of the handler and the userfaultfd's number in its table.
pub fn descriptor() -> Option<(u32, i32)> {
    let thread = THREAD.id();
    (thread != 0).then(|| (thread, UFFD.load(Ordering::Relaxed)))
}

/// Id of the handler, or 0.
pub fn id() -> u32 {
    THREAD.id()
}

/// In a forked child: forgets handler, stacks and descriptors, which are the parent's.
pub fn forget() {
    THREAD.forget();
    STAGE.store(BEGUN, Ordering::Relaxed);
    // SAFETY: the child has one thread, and no handler yet.
    unsafe { ENGINE.reset(Engine::off()) };
}

/// Starts the handler. Runs on a thread of the program, so no governed memory may be registered before it returns.
pub fn begin() -> core::result::Result<(), Stop> {
    // If there are other threads, no descriptor is opened in the program's table; the handler opens them all. Nor is one
    // kept there if nobody would close it at the process's end: a child that shares the table, and outlives the process,
    // would wait for the handler.
    let keeps = libc::is_alone() && plan::watches_exit();
    apart(|| open_and_begin(keeps)).map_err(stop(EngineFailure::Threads))?
}

fn open_and_begin(keeps: bool) -> core::result::Result<(), Stop> {
    match rights::get() {
        Ok((uffd, pagemap)) => {
            let result = begin_with(uffd, pagemap);
            if keeps && result.is_ok() {
                registration::keep(uffd);
            }
            sys::close(pagemap.0);
            sys::close(uffd.0);
            result
        }
        // The program's table is full, but the handler's own is not.
        Err(Stop { errno: Some(Errno::EMFILE), .. }) => begin_with(Uffd(NONE), Pagemap(NONE)),
        Err(stop) => Err(stop),
    }
}

fn begin_with(uffd: Uffd, pagemap: Pagemap) -> core::result::Result<(), Stop> {
    handler_affinity::attach();
    priority::learn();
    UFFD.store(uffd.0, Ordering::Relaxed);
    PAGEMAP.store(pagemap.0, Ordering::Relaxed);
    STAGE.store(BEGUN, Ordering::Release);
    // SAFETY: the thread does not run; `body` uses nothing but system calls and the library's own memory.
    unsafe { THREAD.start(body, 0) }.map_err(stop(EngineFailure::Threads))?;
    // Waits until the handler has closed its copies of the program's descriptors: the other ends of pipes must see them
    // closed.
    while STAGE.load(Ordering::Acquire) == BEGUN {
        task::futex_wait_for(&STAGE, BEGUN, 1_000_000_000);
    }
    if STAGE.load(Ordering::Acquire) != READY {
        // What the program calls next may need a single thread.
        let _ = THREAD.join();
        let failure = EngineFailure::from_code(u64::from(FAILURE.load(Ordering::Relaxed)));
        let errno = Some(Errno(ERRNO.load(Ordering::Relaxed))).filter(|errno| errno.0 != 0);
        return Err(Stop { failure: failure.unwrap_or(EngineFailure::Other), errno });
    }
    requests::set_page(own_pages::address());
    Ok(())
}

/// Closes all descriptors but the two.
fn keep_only(a: i32, b: i32) {
    let (low, high) = (a.min(b) as u32, a.max(b) as u32);
    if low > 0 {
        let _ = task::close_range(0, low - 1);
    }
    if high > low + 1 {
        let _ = task::close_range(low + 1, high - 1);
    }
    let _ = task::close_range(high + 1, u32::MAX);
}

extern "C" fn body(_: usize) -> ! {
    task::set_name(c"pagelab-frames");
    match prepare() {
        Ok(uffd) => {
            STAGE.store(READY, Ordering::Release);
            task::futex_wake_all(&STAGE);
            serve(uffd)
        }
        Err(stop) => {
            FAILURE.store(stop.failure.code() as u32, Ordering::Relaxed);
            ERRNO.store(stop.errno.map_or(0, |errno| errno.0), Ordering::Relaxed);
            STAGE.store(FAILED, Ordering::Release);
            task::futex_wake_all(&STAGE);
            task::exit_thread()
        }
    }
}

/// Prepares everything before the first message.
fn prepare() -> core::result::Result<Uffd, Stop> {
    let (mut uffd, mut pagemap) = (Uffd(UFFD.load(Ordering::Relaxed)), Pagemap(PAGEMAP.load(Ordering::Relaxed)));
    if uffd.0 == NONE {
        task::close_range(0, u32::MAX).map_err(stop(EngineFailure::Other))?;
        (uffd, pagemap) = rights::get()?;
        UFFD.store(uffd.0, Ordering::Relaxed);
    } else {
        keep_only(uffd.0, pagemap.0);
    }
    let pins = |plan: Plan<'_>| {
        (0..plan.strategy_count()).filter_map(|number| plan.strategy(number)).any(|strategy| strategy.pin)
    };
    let own = own_pages::map(uffd, plan::current().is_some_and(pins)).map_err(stop(EngineFailure::NoMemory))?;
    memory_nodes::learn();
    ENGINE.lock().pools.group.learn();
    if let Some(plan) = plan::current() {
        let tools = Tools { uffd, pagemap, landing: own + PAGE, transit: own + own_pages::FIRST_TRANSIT * PAGE };
        if !ENGINE.lock().set_up(&plan, tools) {
            tally::failed(EngineState::Running, EngineFailure::Module, None);
        }
    }
    // Without a pipe, pages are looked up before they are moved, but not held.
    let _ = ENGINE.lock().checks.grip.open();
    // Opened now: a hint may request exact frames later, when the file cannot be opened any more.
    ENGINE.lock().opened_flags();
    // All descriptors are open. A program that gives up its rights must not keep a thread that still has them, and
    // setuid(3) does not change the user of threads that were made past libc. Pinning requires that the pool can be
    // locked to the same extent as the program's memory.
    let keeps_lock = plan::current().is_some_and(pins) && task::may_lock_beyond_limit(0);
    KEEPS_LOCK.store(keeps_lock, Ordering::Relaxed);
    priority::take();
    task::give_up_rights(keeps_lock).map_err(stop(EngineFailure::Rights))?;
    Ok(uffd)
}

fn is_pinned(addr: usize) -> bool {
    areas::strategy_of(addr).is_some_and(engine::is_pinned)
}

/// Answers messages for ever.
fn serve(uffd: Uffd) -> ! {
    task::without_timer_slack();
    let mut affinity = Affinity::new();
    let mut messages = [Message::default(); AT_ONCE];
    let mut gathering = Gathering::new();
    loop {
        // One thread has one fault, and another read for more messages takes longer than this one.
        let most = if libc::has_one_thread() { 1 } else { AT_ONCE };
        let count = match uffd.wait(messages.get_mut(..most).unwrap_or(&mut [])) {
            Ok(count) => count,
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(_) => end(uffd),
        };
        tally::engine(|counts| &counts.batches, 1);
        tally::engine(|counts| &counts.messages, count as u64);
        follow_rights();
        let mut stopped = false;
        let mut engine = ENGINE.lock();
        if count > 1 {
            engine.wake_later();
        }
        for (addr, thread) in messages.iter().take(count).filter_map(Message::fault) {
            if addr & !(PAGE - 1) == requests::page() {
                stopped |= reply(&mut engine, uffd, thread);
            } else {
                engine.fault(addr, thread);
            }
        }
        engine.wake_all();
        let low = engine.pools.needs_refill();
        let holds = engine.holds();
        #[cfg(feature = "expensive")]
        engine.pools.check("a batch of faults");
        drop(engine);
        if stopped {
            release(uffd);
            end(uffd);
        }
        if low {
            refiller::call();
        }
        if holds {
            refiller::tidy_soon();
        }
        if most > 1 {
            gathering.answered(count, sys::ticks());
        }
        affinity.follow();
        rest::HANDLER.rest();
    }
}

/// Answers the request of `thread`. True: the handler must end.
fn reply(engine: &mut Engine, uffd: Uffd, thread: u32) -> bool {
    if let Some((kind, span)) = requests::question() {
        let result = match kind {
            Kind::Register => registrable::prepare(uffd, span, is_pinned(span.start)).map(|()| 0),
            Kind::Unregister => uffd.unregister(span).map(|()| 0),
            Kind::Eager => Ok(engine.eager(span, thread)),
            Kind::Census => Ok(census::take(engine, span, false)),
            Kind::CensusTiled => Ok(census::take(engine, span, true)),
            Kind::Remap => Ok(engine.remap(span)),
            Kind::Relock => {
                own_pages::relock();
                engine.pools.relock();
                Ok(0)
            }
            Kind::Shed => {
                engine.shed();
                Ok(0)
            }
            Kind::LetGo => {
                engine.checks.grip.let_go();
                Ok(0)
            }
            Kind::Priority => {
                priority::adjust();
                Ok(0)
            }
            Kind::HandOver => engine.pools.hand_over(span).map(|()| 0),
            Kind::Replace => engine.replace(span),
            Kind::Hint => engine.take_hint(span.start),
            Kind::Frames => engine.pools.show_frames(span),
            // The requesting thread continues when the handler ends.
            Kind::Stop => {
                requests::answer(Ok(0));
                return true;
            }
        };
        requests::answer(result);
    }
    let page = page_at(requests::page());
    for _ in 0..1000 {
        match uffd.zero(page) {
            Err(Errno::EAGAIN) => {}
            Err(_) => break,
            Ok(()) => return false,
        }
    }
    let _ = uffd.wake(page);
    false
}

/// Unregisters all memory of the program.
fn release(uffd: Uffd) {
    let _ = registrable::each_registrable(&mut |span| {
        let _ = uffd.unregister(span);
    });
}

/// Ends the handler.
fn end(uffd: Uffd) -> ! {
    refiller::dismiss();
    ENGINE.lock().dissolve();
    tally::state(EngineState::Stopped);
    own_pages::release(uffd);
    sys::close(uffd.0);
    task::exit_thread()
}

/// Waits for the handler's end.
pub fn join() -> bool {
    THREAD.join()
}
