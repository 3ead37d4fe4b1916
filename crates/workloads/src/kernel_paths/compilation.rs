//! A compilation, which the patch reports beside lmbench: there a kernel's, here a small file's.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::ground::Ground;
use super::processes::word;
use super::rounds::{Failure, Path};
use super::system::Child;

/// What is compiled: no header is needed.
const SOURCE: &str = include_str!("compilation.c");

/// A C file compiled to an object file by the system's compiler.
pub fn compile(ground: &Ground) -> Result<Path, Failure> {
    let Some(compiler) = found("cc") else {
        return Err(Failure::Impossible("there is no C compiler (cc); Debian: apt install gcc".to_owned()));
    };
    let told = |path: &PathBuf, error: std::io::Error| format!("cannot use {}: {error}", path.display());
    let (source, object) = (ground.directory.join("source.c"), ground.directory.join("object.o"));
    std::fs::write(&source, SOURCE).map_err(|error| told(&source, error))?;
    let path = CString::new(compiler.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // Without files in between, which a compiler that is killed would leave.
    let mut words: Vec<CString> = ["cc", "-O2", "-pipe", "-c", "-o"].map(word).into();
    words.extend([ground.path("object.o")?, ground.path("source.c")?]);
    let again = object.clone();
    Ok(Path::new(1, 1, move || {
        let status = Child::execute(&path, &words)?.wait()?;
        if status != 0 {
            return Err(format!("{} failed with {status}; its message is above", compiler.display()));
        }
        Ok(u64::from(is_object(&object)))
    })
    .before(move || {
        let _ = std::fs::remove_file(&again);
        Ok(())
    }))
}

/// A program on the PATH.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// Whether it is a file of ELF's format.
fn is_object(path: &std::path::Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}
