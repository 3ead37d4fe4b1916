//! The program that an exec starts: scripts name an interpreter, and other architectures need another emulator.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel follows at most this many interpreters of scripts.
const INTERPRETERS: usize = 5;
/// The kernel reads at most this much of a script's first line.
const LINE: usize = 256;

/// Follows `#!` lines to the program and its arguments; an error names the reason why it cannot be emulated here.
pub fn resolve(
    mut program: CString,
    mut arguments: Vec<CString>,
    target: &str,
) -> Result<(CString, Vec<CString>), String> {
    for _ in 0..INTERPRETERS {
        let mut head = Vec::with_capacity(LINE);
        let file = File::open(as_path(&program)).map_err(|error| error.to_string())?;
        file.take(LINE as u64).read_to_end(&mut head).map_err(|error| error.to_string())?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let (interpreter, option) = script(line).ok_or("its first line names no interpreter")?;
            let rest = arguments.drain(..).skip(1).collect::<Vec<_>>();
            arguments.push(interpreter.clone());
            arguments.extend(option);
            arguments.push(program);
            arguments.extend(rest);
            program = interpreter;
            continue;
        }
        return if elf_of(&head, target) {
            Ok((program, arguments))
        } else {
            Err(format!("it is not an ELF program for {target}"))
        };
    }
    Err("its interpreters are scripts themselves".into())
}

/// Interpreter and its one optional argument.
fn script(line: &[u8]) -> Option<(CString, Option<CString>)> {
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, option) = line.split_at(end);
    let option = option.trim_ascii();
    let interpreter = (!interpreter.is_empty()).then(|| CString::new(interpreter).ok())??;
    let option = if option.is_empty() { None } else { Some(CString::new(option).ok()?) };
    Some((interpreter, option))
}

/// Whether these are the first bytes of a 64-bit little-endian ELF file for the target.
fn elf_of(head: &[u8], target: &str) -> bool {
    let machine = match target {
        "x86_64" => 62u16,
        "aarch64" => 183,
        "riscv64" => 243,
        _ => return false,
    };
    head.len() >= 20 && head.starts_with(b"\x7fELF\x02\x01") && head[18..20] == machine.to_le_bytes()
}

/// The path as Rust has it.
fn as_path(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}
