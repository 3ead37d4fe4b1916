//! Strategies out of shared objects: checked before the program starts, and loaded behind the library.

use crate::elf;
use crate::error::{Error, Result};
use crate::sys;
use pagelab_policy::plan::{PlanSpec, StrategyKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The object that a module exports; `pagelab_strategy.h` describes it.
const TABLE: &str = "pagelab_strategy";

/// The modules of a plan, as they are to be loaded.
#[derive(Debug, Default)]
pub struct Modules {
    /// All paths in the order in which LD_PRELOAD gets them, each once.
    pub paths: Vec<PathBuf>,
    /// By the number of the strategy the path of its module, by which the library finds the loaded object; else empty.
    pub by_strategy: Vec<Vec<u8>>,
}

/// Checks the modules of a plan.
///
/// # Errors
/// A module that is not there, or not one.
pub fn prepare(plan: &PlanSpec) -> Result<Modules> {
    let mut modules = Modules::default();
    for strategy in &plan.strategies {
        if strategy.kind != StrategyKind::Module {
            modules.by_strategy.push(Vec::new());
            continue;
        }
        let path = check(&PathBuf::from(std::ffi::OsString::from_vec(strategy.module.clone())))?;
        modules.by_strategy.push(path.as_os_str().as_bytes().to_vec());
        if !modules.paths.contains(&path) {
            modules.paths.push(path);
        }
    }
    Ok(modules)
}

fn check(path: &PathBuf) -> Result<PathBuf> {
    let shown = path.display();
    let cannot_read = |error: std::io::Error| {
        Error::BadInput(format!(
            "cannot read the strategy module {shown}: {}; run: ls -l {shown}",
            sys::errno_text(&error)
        ))
    };
    let path = std::fs::canonicalize(path).map_err(cannot_read)?;
    let file = sys::files::open_regular(&path).map_err(cannot_read)?;
    let build = "build it as pagelab_strategy.h says: cc -shared -fPIC -o mine.so mine.c";
    let Some(elf) = elf::inspect(&file) else {
        return Err(Error::BadInput(format!("the strategy module {shown} is no ELF file; {build}")));
    };
    let own = if cfg!(target_arch = "x86_64") { elf::X86_64 } else { elf::AARCH64 };
    if !elf.is_64_bit || elf.machine != own {
        return Err(Error::BadInput(format!(
            "the strategy module {shown} is for another processor or word size than pagelab's library; {build}"
        )));
    }
    if !elf.dynamic {
        return Err(Error::BadInput(format!("the strategy module {shown} is no shared object; {build}")));
    }
    if !elf::exports(&file, TABLE) {
        return Err(Error::BadInput(format!(
            "the strategy module {shown} does not export the table `{TABLE}`; run: nm -D {shown}; {build}"
        )));
    }
    if path.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(Error::Cannot(format!(
            "cannot preload the strategy module {shown}: LD_PRELOAD takes no path with blanks or colons; copy it elsewhere"
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_policy::plan::StrategySpec;

    fn refused(path: &str) -> String {
        let module = StrategySpec { module: path.into(), ..StrategySpec::new(StrategyKind::Module, 1) };
        let plan = PlanSpec { strategies: vec![module], ..PlanSpec::default() };
        let error = prepare(&plan).expect_err(path);
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn what_is_no_module_is_refused_with_the_reason() {
        assert!(refused("/no/such.so").contains("cannot read the strategy module /no/such.so"));
        assert!(refused("/etc/passwd").contains("is no ELF file"));
        let libc = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let libc = libc.split_whitespace().find(|word| word.contains("/libc.so")).expect("libc").to_owned();
        assert!(refused(&libc).contains("does not export the table `pagelab_strategy`"), "{libc}");
    }

    #[test]
    fn plans_without_modules_load_nothing() {
        let plan = PlanSpec { strategies: vec![StrategySpec::new(StrategyKind::Random, 4)], ..PlanSpec::default() };
        assert!(prepare(&plan).expect("nothing to check").paths.is_empty());
    }
}
