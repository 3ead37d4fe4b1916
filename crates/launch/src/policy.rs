//! The policy of a run: text to plan.

use crate::error::{Error, Result};
use crate::frames::kernel::Facts;
use crate::request::Request;
use pagelab_contract::record::PolicyAsked;
use pagelab_policy::compile::compile;
use pagelab_policy::framemap::LARGEST_FILE;
use pagelab_policy::hints::{Hint, hints};
use pagelab_policy::plan::{BASE_PAGE, Fetch, PlanSpec, SectionSpec, Via};
use pagelab_policy::read::{Files, read_toml};
use pagelab_policy::types::Backend;
use pagelab_policy::validate::{beyond_the_library, validate};
use pagelab_policy::{Machine, Policy, PolicyError};
use sha2::{Digest, Sha256};
use std::path::Path;

/// A policy that has been validated for this machine, and compiled: both once for a run.
#[derive(Debug)]
pub struct Prepared {
    /// The policy's part of the record.
    pub asked: PolicyAsked,
    /// The compiled policy, as the library carries it out. What the run adds is a [`pagelab_policy::plan::RunSpec`].
    pub plan: PlanSpec,
    /// The hints that the kernel carries out.
    pub hints: Vec<Hint>,
    /// Whether the program's own hints go to the kernel.
    pub hints_by_kernel: bool,
    /// The library's work under this policy.
    policy: Policy,
}

/// Smaller pages than these are entries of page tables.
const SMALLEST_PMD: u64 = 2 << 20;

/// The policy of a request that names none.
const KERNEL_DEFAULT: &str = "name = \"kernel\"\n";

fn refused(error: PolicyError) -> Error {
    Error::BadInput(error.to_string())
}

/// Reads and validates the request's policy. CSV files it names are read relative to the policy's own file.
pub fn prepare(request: &Request) -> Result<Prepared> {
    let source = request.policy_path.as_deref().unwrap_or("<policy>");
    let directory =
        request.policy_path.as_deref().and_then(|path| Path::new(path).parent()).unwrap_or(Path::new("."));
    let text = if request.policy_toml.trim().is_empty() { KERNEL_DEFAULT } else { &request.policy_toml };
    let raw = read_toml(text, source, &Beside(directory)).map_err(refused)?;
    let machine = machine(&request.machine)?;
    let policy = validate(&raw, &machine).map_err(refused)?;
    let toml = pagelab_policy::write::to_toml(&policy);
    let hints = given_hints(&policy, &machine)?;
    let hints_by_kernel = !hints.is_empty() || takes_hints(&policy);
    let name = policy.name.clone();
    let policy =
        if policy.backend == Backend::Kernel || !hints.is_empty() { policy.without_frames() } else { policy };
    let plan = compile(&policy, &machine).map_err(|error| Error::Cannot(error.to_string()))?;
    let asked = PolicyAsked {
        name,
        digest: hex(&Sha256::digest(toml.as_bytes())),
        toml,
        path: request.policy_path.clone(),
    };
    Ok(Prepared { asked, plan, hints, hints_by_kernel, policy })
}

/// The hints for the kernel. Under `auto` there are none if hints cannot express the policy, or the kernel lacks one of
/// the strategies.
fn given_hints(policy: &Policy, machine: &Machine) -> Result<Vec<Hint>> {
    match policy.backend {
        Backend::Library => Ok(Vec::new()),
        Backend::Kernel => hints(policy, machine).map_err(refused),
        Backend::Auto => {
            let facts = Facts::gather();
            by_kernel_or_library(policy, hints(policy, machine).unwrap_or_default(), &facts)
        }
    }
}

/// The hints if this kernel has all their strategies, or none if the library can place the frames instead.
fn by_kernel_or_library(policy: &Policy, hints: Vec<Hint>, facts: &Facts) -> Result<Vec<Hint>> {
    let has_all = hints.iter().all(|hint| facts.has(hint.strategy.kind.name()));
    if has_all && !hints.is_empty() {
        return Ok(hints);
    }
    beyond_the_library(policy).map_or(Ok(Vec::new()), |error| Err(refused(error)))
}

/// Whether the program's own hints (`pagelab.h`) go to the kernel, under a policy that itself gives the kernel no
/// hints. Under `auto` the library keeps them where it places the policy's frames.
fn takes_hints(policy: &Policy) -> bool {
    match policy.backend {
        Backend::Library => false,
        Backend::Kernel => true,
        Backend::Auto => !policy.governs_frames() && Facts::gather().hints.is_ok(),
    }
}

/// Files that a policy names, relative to the policy's own.
struct Beside<'d>(&'d Path);

impl Files for Beside<'_> {
    fn read(&self, name: &str) -> std::result::Result<String, String> {
        let path = self.0.join(name);
        let refused = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
        if std::fs::metadata(&path).map_err(refused)?.len() > LARGEST_FILE {
            return Err(format!("{} is larger than {} MiB", path.display(), LARGEST_FILE >> 20));
        }
        std::fs::read_to_string(&path).map_err(refused)
    }

    fn locate(&self, name: &str) -> String {
        let path = self.0.join(name);
        std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned()
    }
}

/// Without a description, a policy may use only what every Linux machine has.
fn machine(description: &serde_json::Value) -> Result<Machine> {
    let text = match description {
        serde_json::Value::Null => r#"{"base_page_bytes": 4096}"#.to_owned(),
        described => described.to_string(),
    };
    Machine::from_json(&text)
        .map_err(|error| Error::BadInput(format!("the request's machine description: {error}")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Prepared {
    /// Whether the library has nothing to do.
    pub fn asks_nothing(&self) -> bool {
        self.policy.is_kernel()
    }

    /// Whether the library is to place frames.
    pub fn governs_frames(&self) -> bool {
        self.policy.governs_frames()
    }

    /// Whether programs that the program executes are governed too.
    pub fn inherits_exec(&self) -> bool {
        self.policy.inherit.exec
    }
}

/// Whether any memory of the plan is to be paged on demand only.
pub fn wants_demand(plan: &PlanSpec) -> bool {
    plan.sections.iter().any(|section| section.fetch == Fetch::Demand)
}

/// Every size that a plan asks for, 0 where it is left to the kernel, and how.
fn page_sizes(plan: &PlanSpec) -> impl Iterator<Item = (u64, Via)> {
    let whole = |section: &SectionSpec| (section.otherwise, section.otherwise_via);
    let pieces =
        plan.sections.iter().flat_map(|section| &section.intervals).map(|piece| (piece.page_bytes, piece.via));
    plan.sections.iter().map(whole).chain(pieces)
}

/// Whether memory may get huge pages, and whether it may get smaller ones.
pub fn may_be(plan: &PlanSpec) -> (bool, bool) {
    let sizes: Vec<u64> = page_sizes(plan).map(|(bytes, _)| bytes).collect();
    let is_left = sizes.is_empty() || sizes.contains(&0);
    let any = |is: fn(u64) -> bool| is_left || sizes.iter().any(|&bytes| is(bytes));
    (any(|bytes| bytes >= SMALLEST_PMD), any(|bytes| bytes < SMALLEST_PMD))
}

/// Transparent sizes to be switched on for a plan: empty unless it names one between the base page and 2M, since 2M
/// alone needs no switch (MADV_COLLAPSE works without).
pub fn mthp_sizes(plan: &PlanSpec) -> Vec<u64> {
    let transparent = page_sizes(plan).filter(|(_, via)| *via == Via::Thp);
    let mut sizes: Vec<u64> = transparent.map(|(bytes, _)| bytes).filter(|&bytes| bytes > BASE_PAGE).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.iter().any(|&bytes| bytes < SMALLEST_PMD) { sizes } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_auto_a_rule_for_files_is_refused_only_where_the_kernel_cannot_carry_it_out() {
        let text =
            "name = \"x\"\nbackend = \"auto\"\n[[rule]]\nmemory = \"file\"\nframes = { random = { colors = 8 } }";
        let machine = Machine::generic_x86_64();
        let facts = |strategies: &[&str]| Facts {
            hints: Ok(()),
            strategies: strategies.iter().map(|&name| name.to_owned()).collect(),
            release: String::new(),
        };
        let chosen = |text: &str, facts: &Facts| {
            let policy =
                pagelab_policy::parse(text, "p.toml", &machine, &Beside(Path::new("."))).expect("a policy");
            by_kernel_or_library(&policy, hints(&policy, &machine).expect("hints"), facts)
        };
        assert_eq!(chosen(text, &facts(&["random"])).expect("the kernel").len(), 1);
        let message = chosen(text, &facts(&["modulo"])).expect_err("nobody").to_string();
        assert!(message.contains("the frames of `file` cannot be chosen"), "{message}");
        assert!(message.contains("--backend kernel"), "{message}");
        assert!(chosen(&text.replace("file", "heap"), &facts(&["modulo"])).expect("the library").is_empty());
    }
}
