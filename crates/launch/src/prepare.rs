//! Decides everything about a run on this machine, before anything is changed.

use crate::counters;
use crate::cpus::{self, Cpus};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::flush;
use crate::frames::kernel::Facts;
use crate::measurements;
use crate::policy::{self, Prepared};
use crate::request::{Preload, Request};
use crate::rundir::{Making, RunDir};
use crate::scheduler;
use crate::sys;
use crate::sys::process::RealTime;
use crate::target::{self, Target};
use crate::user::{self, Runner};
use crate::warnings::{Kind, Warnings};
use regex::Regex;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Everything decided before the program starts.
pub struct Ready<'r> {
    /// The request.
    pub request: &'r Request,
    /// The user of the program.
    pub runner: Runner,
    /// Its CPUs.
    pub cpus: Cpus,
    /// Its real-time policy, if it has one.
    pub real_time: Option<RealTime>,
    /// Its directory.
    pub cwd: PathBuf,
    /// The program's file.
    pub target: Target,
    /// Its policy.
    pub policy: Prepared,
    /// Whether the library is loaded.
    pub preloaded: bool,
    /// Its environment.
    pub environment: Environment,
    /// The warnings so far.
    pub warnings: Warnings,
    /// The run directory.
    pub run_dir: RunDir,
    /// The library's path.
    pub library: PathBuf,
    /// The expression that finds measurements in its output.
    pub regex: Option<Regex>,
    /// The events to count.
    pub events: Vec<counters::Role>,
    /// Free memory that was touched before the program starts; None: not yet, or not requested.
    pub host_backed_bytes: Option<u64>,
}

/// Decides everything from a request. Nothing is changed, except that the run directory is made.
///
/// # Errors
/// The first part of the request that cannot be carried out.
pub fn prepare<'r>(request: &'r Request, making: &Making) -> Result<Ready<'r>> {
    let mut warnings = Warnings::default();
    let sudo = |name: &str| std::env::var(name).ok();
    let runner = user::decide(request.user.as_deref(), sudo("SUDO_UID").as_deref(), sudo("SUDO_GID").as_deref())?;
    user::check_rights(&runner)?;
    let cpus = cpus::choose(&request.cpus)?;
    cpus::check_node(request.node)?;
    let real_time = scheduler::take(request.scheduler, &mut warnings)?;
    let regex = request.measurements.regex.as_deref().map(measurements::compile).transpose()?;
    let events = counters::parse(&request.events)?;
    flush::check(&request.flush)?;
    let cwd = working_directory(request)?;
    let mut environment = Environment::new(&request.env);
    if runner.change {
        user::variables(&runner.identity).into_iter().for_each(|(name, value)| environment.set(name, value));
    }
    let program = request.argv.first().map_or("", String::as_str);
    let resolve = || Ok(target::resolve(program, environment.get("PATH"), &cwd));
    // The program names further files (the interpreters of scripts): nothing is read that its user may not read.
    let target = match runner.change {
        true => sys::user::with_files_of(&runner.identity, resolve).map_err(|error| {
            Error::Cannot(format!("cannot look up the program as its user: {}", sys::errno_text(&error)))
        })?,
        false => target::resolve(program, environment.get("PATH"), &cwd),
    }?;
    let policy = policy::prepare(request)?;
    if !policy.hints.is_empty() {
        Facts::gather().judge()?;
    }
    let preloaded = decide_preload(request, &target, &policy, &mut warnings)?;
    let library = library(request, preloaded)?;
    let identity = &runner.identity;
    let run_dir = RunDir::create(request.run_dir_root.as_deref(), making, identity.uid, identity.gid)?;
    if let Some(fd) = request.measurements.fd {
        environment.set("PAGELAB_MEASURE_FD", fd.to_string());
    }
    Ok(Ready {
        request,
        runner,
        cpus,
        real_time,
        cwd,
        target,
        policy,
        preloaded,
        environment,
        warnings,
        run_dir,
        library,
        regex,
        events,
        host_backed_bytes: None,
    })
}

fn working_directory(request: &Request) -> Result<PathBuf> {
    let own = std::env::current_dir().map_err(|error| {
        Error::BadInput(format!(
            "the working directory was removed: {}; go to another one; run: cd",
            sys::errno_text(&error)
        ))
    })?;
    Ok(request.cwd.as_ref().map_or(own.clone(), |cwd| own.join(cwd)))
}

/// Refuses a request that forbids the library which its policy needs.
pub fn check_preload(request: &Request, policy: &Prepared) -> Result<()> {
    if request.preload != Preload::Never || policy.asks_nothing() {
        return Ok(());
    }
    let message = "the policy needs the library, and --no-preload forbids it; leave out one of the two";
    Err(Error::BadInput(message.to_owned()))
}

fn decide_preload(request: &Request, target: &Target, policy: &Prepared, warnings: &mut Warnings) -> Result<bool> {
    let asks = !policy.asks_nothing();
    check_preload(request, policy)?;
    if request.preload == Preload::Never {
        return Ok(false);
    }
    let Some(obstacle) = target.obstacle else { return Ok(true) };
    let binary = target.binary.display();
    if asks || request.preload == Preload::Always {
        return Err(Error::Cannot(format!(
            "cannot govern {binary}: {}; {}",
            obstacle.reason(),
            obstacle.advice(policy.governs_frames())
        )));
    }
    let message =
        format!("{binary} runs without the library: {}; its placement is not measured", obstacle.reason());
    warnings.warn(Kind::GuestNotLoaded, message, json!({"executable": target.binary, "reason": obstacle.reason()}));
    Ok(false)
}

/// The library's path; a run without it uses the path only for the size of the environment.
fn library(request: &Request, preloaded: bool) -> Result<PathBuf> {
    let library = request.library.clone().unwrap_or_default();
    if !preloaded {
        // As with the library, or links in it would make environments of different sizes.
        return Ok(std::fs::canonicalize(&library).unwrap_or(library));
    }
    let library = std::fs::canonicalize(&library).map_err(|error| {
        Error::BadInput(format!("cannot find the library {}: {error}; run: pip install .", library.display()))
    })?;
    // LD_PRELOAD separates its entries by colons and blanks and has no way to quote them.
    if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(Error::Cannot(format!(
            "cannot preload {}: LD_PRELOAD takes no path with blanks or colons; \
             copy the library and run: PAGELAB_LIBRARY=/tmp/libpagelab.so pagelab run …",
            library.display()
        )));
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_the_library_may_leave_frames_to_the_kernel() {
        let is_refused = |policy: &str| {
            let text =
                json!({"schema": "pagelab.request/1", "argv": ["true"], "preload": "never", "policy_toml": policy});
            let request = crate::request::parse(text.to_string().as_bytes()).expect("a request");
            check_preload(&request, &policy::prepare(&request).expect("a policy")).is_err()
        };
        let frames = "frames = { random = { colors = 8 } }\n";
        assert!(!is_refused("") && is_refused(frames));
        assert!(!is_refused(&format!("backend = \"kernel\"\n{frames}")));
        assert!(is_refused(&format!("backend = \"kernel\"\nfetch = \"prefault\"\n{frames}")));
    }
}
