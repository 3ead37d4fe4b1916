//! The program's environment.

use crate::request::EnvChanges;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name of the variable that takes the space of the variables that a run without the library lacks.
const PADDING: &str = "PAGELAB_PAD";

/// The program's environment, in the order in which the kernel will see it (sorted by name, so that it does not
/// depend on who called).
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The launcher's own environment with the request's changes.
    pub fn new(changes: &EnvChanges) -> Environment {
        let mut variables: BTreeMap<OsString, OsString> =
            if changes.clear { BTreeMap::new() } else { std::env::vars_os().collect() };
        for name in &changes.unset {
            variables.remove(OsStr::new(name));
        }
        for (name, value) in &changes.set {
            variables.insert(name.into(), value.into());
        }
        Environment(variables)
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    /// Loads `library` before all others, behind it the modules it needs and the user's own LD_PRELOAD, and names the
    /// plan.
    pub fn preload(&mut self, library: &Path, modules: &[PathBuf], plan: &Path) {
        let mut value = library.as_os_str().to_owned();
        for module in modules {
            value.push(":");
            value.push(module);
        }
        if let Some(own) = self.get("LD_PRELOAD").filter(|own| !own.is_empty()) {
            value.push(":");
            value.push(own);
        }
        self.set("LD_PRELOAD", value);
        self.set("PAGELAB_PLAN", plan.as_os_str());
        // If there are more filters than these, a process in between has installed one, and the library does nothing.
        let filters = seccomp_filters();
        if filters > 0 {
            self.set("PAGELAB_FILTERS", filters.to_string());
        }
    }

    /// For a program with AddressSanitizer's runtime as a library: by default that runtime refuses to start if another
    /// library comes before it.
    pub fn allow_before_asan(&mut self) {
        const NAME: &str = "ASAN_OPTIONS";
        let mut value = self.get(NAME).filter(|own| !own.is_empty()).map(OsStr::to_owned).unwrap_or_default();
        if !value.is_empty() {
            value.push(":");
        }
        value.push("verify_asan_link_order=0");
        self.set(NAME, value);
    }

    /// For a run without the library: as many bytes as [`Environment::preload`] would have added, because the
    /// environment's size moves the stack and can change a program's speed (Mytkowicz et al., ASPLOS 2009).
    pub fn pad(&mut self, library: &Path, plan: &Path) {
        let mut loaded = self.clone();
        loaded.preload(library, &[], plan);
        let missing = loaded.bytes() - self.bytes();
        if let Some(length) = missing.checked_sub(PADDING.len() + 2) {
            self.set(PADDING, "x".repeat(length));
        }
    }

    /// Bytes of all strings with their NULs.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
    }

    /// As execve wants it. Strings cannot contain NULs: they come from an environment or a checked request.
    pub fn to_c(&self) -> Vec<CString> {
        let joined = self.0.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        joined.filter_map(|bytes| CString::new(bytes).ok()).collect()
    }

    /// The variables that can change how a program uses memory, sorts or prints, and those that the request sets.
    pub fn that_matters(&self, changes: &EnvChanges) -> BTreeMap<String, String> {
        let matters = |name: &OsStr| {
            let text = name.to_string_lossy();
            ["LD_", "MALLOC_", "OMP_", "LC_", "PAGELAB_"].iter().any(|prefix| text.starts_with(prefix))
                || ["GLIBC_TUNABLES", "LANG", "PATH"].contains(&text.as_ref())
                || changes.set.contains_key(text.as_ref())
        };
        let text = |string: &OsString| String::from_utf8_lossy(&string.clone().into_vec()).into_owned();
        self.0.iter().filter(|(name, _)| matters(name)).map(|(name, value)| (text(name), text(value))).collect()
    }
}

/// Seccomp filters that this process is under (before Linux 5.9 only whether there are some).
fn seccomp_filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value("Seccomp_filters:").or_else(|| value("Seccomp:")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(clear: bool, set: &[(&str, &str)]) -> EnvChanges {
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        EnvChanges { clear, set, unset: Vec::new() }
    }

    #[test]
    fn the_users_own_preload_stays_behind_ours() {
        let mut environment = Environment::new(&changes(true, &[("LD_PRELOAD", "/x.so")]));
        environment.preload(Path::new("/p.so"), &["/m.so".into()], Path::new("/plan"));
        assert_eq!(environment.get("LD_PRELOAD"), Some(OsStr::new("/p.so:/m.so:/x.so")));
    }

    #[test]
    fn options_for_asan_are_kept() {
        for (own, expected) in [
            (&[("ASAN_OPTIONS", "detect_leaks=0")][..], "detect_leaks=0:verify_asan_link_order=0"),
            (&[], "verify_asan_link_order=0"),
        ] {
            let mut environment = Environment::new(&changes(true, own));
            environment.allow_before_asan();
            assert_eq!(environment.get("ASAN_OPTIONS"), Some(OsStr::new(expected)));
        }
    }

    #[test]
    fn runs_with_and_without_the_library_have_environments_of_equal_size() {
        for own in [&[][..], &[("LD_PRELOAD", "/x.so")], &[("HOME", "/root")]] {
            let mut with = Environment::new(&changes(true, own));
            let mut without = with.clone();
            with.preload(Path::new("/usr/lib/libpagelab.so"), &[], Path::new("/dev/shm/pagelab-0/plan"));
            without.pad(Path::new("/usr/lib/libpagelab.so"), Path::new("/dev/shm/pagelab-0/plan"));
            assert_eq!(with.bytes(), without.bytes());
        }
    }
}
