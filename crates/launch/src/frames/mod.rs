//! The launcher's part of frame placement: it checks the requirements before the program starts, passes rights on, and
//! puts the library's results into the record.

pub mod broker;
mod exact;
pub mod kernel;
pub mod module;
pub mod report;
mod rights;

use crate::error::{Error, Result};
use crate::rundir::RunDir;
use crate::settings::Held;
use crate::sys;
use crate::sys::process::RealTime;
use crate::user::{self, Runner};
use crate::warnings::{Kind, Severity, Warnings};
use broker::{Address, Broker};
use pagelab_policy::plan::{PlanSpec, StrategyKind, StrategySpec};
use serde_json::json;
use std::os::fd::RawFd;

pub use rights::Route;

/// Whether compaction may move locked pages.
const COMPACT: &str = "/proc/sys/vm/compact_unevictable_allowed";

/// What a run that places frames keeps open until its end.
#[derive(Debug)]
pub struct Placing {
    /// How processes come to their rights.
    pub route: Route,
    /// Bounds on what the pools of strategies may hold, by number, where the policy names none; 0: the library's own.
    pub budgets: Vec<u64>,
    broker: Option<Broker>,
}

impl Placing {
    /// Checks all that placing frames needs; `None` where the plan leaves them to the kernel.
    ///
    /// # Errors
    /// A requirement that this machine or these rights lack, or a request that cannot be carried out.
    pub fn prepare(
        plan: &PlanSpec,
        runner: &Runner,
        (run_dir, address): (&RunDir, Address),
        warnings: &mut Warnings,
    ) -> Result<Option<Placing>> {
        warnings.0.extend(pagelab_policy::compile::warnings(plan));
        if plan.strategies.is_empty() {
            return Ok(None);
        }
        let route = rights::Facts::gather(keeps_rights(runner)).judge()?;
        let memory = Memory::read();
        plan.strategies.iter().try_for_each(|strategy| check_budget(strategy, &memory))?;
        let budgets = plan.strategies.iter().map(|strategy| budget_bound(strategy.kind, &memory)).collect();
        exact::check(plan, warnings)?;
        // In any case, because a program that has the rights may give them up.
        let in_directory = route == Route::Broker;
        Ok(Some(Placing { route, budgets, broker: Some(Broker::open(run_dir, address, in_directory)?) }))
    }

    /// Become readable when a process asks for rights.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.broker.iter().flat_map(Broker::fds)
    }

    /// Answers processes that ask for rights.
    pub fn visit(&mut self) {
        if let Some(broker) = &mut self.broker {
            broker.visit();
        }
    }

    /// The last process that was refused, and why.
    pub fn refused(&self) -> Option<&(i32, String)> {
        self.broker.as_ref()?.refused.as_ref()
    }
}

/// A child of any other user than root gives up its capabilities before it executes the program.
fn keeps_rights(runner: &Runner) -> bool {
    !runner.change && runner.identity.uid == 0
}

/// Tries whether frames can be placed here, by the user who asked: for studies, before their first run.
///
/// # Errors
/// The first missing requirement, with the message of a run.
pub fn try_here() -> Result<()> {
    let sudo = |name: &str| std::env::var(name).ok();
    let runner = user::decide(None, sudo("SUDO_UID").as_deref(), sudo("SUDO_GID").as_deref())?;
    rights::Facts::gather(keeps_rights(&runner)).judge().map(drop)
}

/// Requirements on the machine, besides rights.
pub fn set_up(
    plan: &PlanSpec,
    placing: &Placing,
    real_time: Option<RealTime>,
    held: &mut Held,
    warnings: &mut Warnings,
) {
    if let Some(what) = real_time.filter(|_| !plan.strategies.is_empty()) {
        // The library's threads must be above a real-time program, also in one that runs without rights.
        let raised = sys::process::allow_priority(what.priority + 1);
        if let (Err(error), false) = (raised, placing.route == Route::Own) {
            let message = format!(
                "the limit on real-time priorities could not be raised ({}): what answers the program's faults has no \
                 higher priority than the program, which may wait for ever at a fault with a signal pending; before: \
                 ulimit -r {}",
                sys::errno_text(&error),
                what.priority + 1
            );
            warnings.warn(Kind::RealTimeLimited, message, json!({"priority": what.priority}));
        }
    }
    if plan.strategies.iter().any(|strategy| strategy.pin) {
        allow_pinning(placing.route == Route::Own, held, warnings);
    }
}

/// Bounds on memory.
struct Memory {
    total_bytes: Option<u64>,
    limit_bytes: Option<u64>,
}

impl Memory {
    fn read() -> Memory {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kilobytes = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Memory { total_bytes: kilobytes.map(|kb| kb << 10), limit_bytes: crate::cgroup::limits().memory_bytes }
    }
}

fn check_budget(strategy: &StrategySpec, memory: &Memory) -> Result<()> {
    let size = pagelab_policy::size::format;
    let bounds = [(memory.total_bytes, "this machine has"), (memory.limit_bytes, "its control group allows")];
    for (bound, whose) in bounds {
        let Some(bound) = bound else { continue };
        if strategy.budget_bytes > bound {
            return Err(Error::Cannot(format!(
                "frames = {:?} may hold {} beyond what it places, and {whose} {} MiB of memory; give a smaller one: \
                 budget = \"{}M\"",
                strategy.kind.name(),
                size(strategy.budget_bytes),
                bound >> 20,
                bound >> 22
            )));
        }
        let placed = if strategy.kind == StrategyKind::Exact { strategy.values.len() as u64 * 4096 } else { 0 };
        if placed > bound {
            return Err(Error::Cannot(format!(
                "frames = \"exact\" names frames for {} MiB, and {whose} {} MiB of memory; name fewer",
                placed >> 20,
                bound >> 20
            )));
        }
    }
    Ok(())
}

/// The library's own bound on the pool considers only the machine's memory. In a control group with a limit, the pool
/// must not be the reason why the program is ended.
fn budget_bound(kind: StrategyKind, memory: &Memory) -> u64 {
    let limit = memory.limit_bytes.filter(|limit| memory.total_bytes.is_none_or(|total| *limit < total));
    match (limit, kind) {
        (None, _) => 0,
        (Some(limit), kind) if kind.facts().is_particular => limit / 4,
        (Some(limit), _) if limit < SMALL_GROUP => limit / 16,
        (Some(_), _) => 0,
    }
}

/// Limits below this make the default bound on a pool, 64 MiB, a large part of them.
const SMALL_GROUP: u64 = 1 << 30;

/// Raises the limit on locked memory for the program (as far as permitted) and keeps compaction from locked pages.
/// `keeps_rights`: the program runs with the launcher's own rights.
fn allow_pinning(keeps_rights: bool, held: &mut Held, warnings: &mut Warnings) {
    let raised = sys::process::unlimit_locked_memory();
    let limit = sys::process::locked_memory_limit();
    let beyond = keeps_rights && sys::process::may_lock(limit.saturating_add(1));
    if let (Err(error), false) = (raised, beyond) {
        let message = format!(
            "pinning is limited to {} KiB a process: the limit on locked memory could not be raised: {}; run as root, \
             or: ulimit -l unlimited",
            limit >> 10,
            sys::errno_text(&error)
        );
        warnings.warn(Kind::FramesMoved, message, json!({"limit_bytes": limit}));
    }
    if let Some(why) = held.keep(COMPACT, "0", "pagelab-launch pin") {
        let message = format!(
            "pinned pages may be moved all the same: compaction could not be kept from locked memory ({COMPACT}: {why}); \
             run as root"
        );
        warnings.add(Kind::FramesMoved, Severity::Info, message, json!({"errno": why}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_budgets_heed_the_limit_of_the_control_group() {
        let bound = |kind, limit_bytes| budget_bound(kind, &Memory { total_bytes: Some(8 << 30), limit_bytes });
        assert_eq!(bound(StrategyKind::Modulo, Some(2 << 30)), 512 << 20);
        assert_eq!(bound(StrategyKind::PageColoring, Some(2 << 30)), 0);
        assert_eq!(bound(StrategyKind::PageColoring, Some(256 << 20)), 16 << 20);
        assert_eq!(bound(StrategyKind::Modulo, None), 0);
        assert_eq!(bound(StrategyKind::Modulo, Some(16 << 30)), 0, "no limit at all");
    }

    #[test]
    fn budgets_are_compared_with_the_memory_there_is() {
        let with = |budget_bytes| StrategySpec { budget_bytes, ..StrategySpec::new(StrategyKind::Modulo, 4) };
        let memory = Memory { total_bytes: Some(8 << 30), limit_bytes: Some(1 << 30) };
        assert!(check_budget(&with(1 << 30), &memory).is_ok());
        let message = check_budget(&with(2 << 30), &memory).expect_err("the group's limit").to_string();
        assert!(message.contains("its control group allows 1024 MiB") && message.contains("\"256M\""), "{message}");
        let message = check_budget(&with(16 << 30), &memory).expect_err("the machine's").to_string();
        assert!(message.contains("may hold 16G") && message.contains("this machine has 8192 MiB"), "{message}");
        let unknown = Memory { total_bytes: None, limit_bytes: None };
        assert!(check_budget(&with(1 << 60), &unknown).is_ok());
    }

    #[test]
    fn the_memory_of_this_machine_is_known() {
        assert!(Memory::read().total_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }
}
