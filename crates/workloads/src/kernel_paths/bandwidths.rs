//! Bytes moved: between processes, out of files, and in memory. A round moves each byte once.

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use super::communication::{Connected, pipes, tcp_sockets, unix_sockets};
use super::ground::Ground;
use super::rounds::{Failure, Path};
use super::system::{Child, Mapping};

/// Bytes of a round between processes, and of one call.
const SENT: usize = 4 << 20;
const BLOCK: usize = 64 << 10;
/// What a process writes.
const CONTENT: u8 = 1;
/// Words of an array: eight bytes that are CONTENT each.
const WORD: u64 = u64::from_ne_bytes([CONTENT; 8]);

/// From another process through a pipe.
pub fn pipe(_: &Ground) -> Result<Path, Failure> {
    from_a_child(pipes()?)
}

/// The same through sockets of AF_UNIX.
pub fn unix(_: &Ground) -> Result<Path, Failure> {
    from_a_child(unix_sockets()?)
}

/// The same over a TCP connection.
pub fn tcp(_: &Ground) -> Result<Path, Failure> {
    from_a_child(tcp_sockets()?)
}

/// A child that writes all of a round when it is sent a byte.
fn from_a_child((mut here, mut there): Connected) -> Result<Path, Failure> {
    let block = vec![CONTENT; BLOCK];
    let child = Child::fork(move || {
        let mut request = [0];
        while there.from.read_exact(&mut request).is_ok() {
            if (0..SENT / BLOCK).any(|_| there.to.write_all(&block).is_err()) {
                break;
            }
        }
        1
    })?;
    let mut buffer = vec![0; BLOCK];
    Ok(Path::new(SENT as u64, SENT as u64, move || {
        let _writes = &child;
        let told = |error| format!("nothing comes from the other process: {error}");
        here.to.write_all(&[1]).map_err(told)?;
        let mut received = 0;
        while received < SENT {
            match here.from.read(&mut buffer).map_err(told)? {
                0 => return Err("the other process has ended".to_owned()),
                count => received += count,
            }
        }
        Ok(received as u64 * u64::from(buffer[0]))
    }))
}

/// Out of a file that is in memory, by read, and added up.
pub fn file_reread(ground: &Ground) -> Result<Path, Failure> {
    let (file, bytes) = (ground.file()?, ground.bytes);
    let mut buffer = vec![0_u8; BLOCK];
    Ok(Path::new(bytes as u64, sum_of(bytes), move || {
        let (mut at, mut sum) = (0, 0_u64);
        while at < bytes {
            let block = &mut buffer[..BLOCK.min(bytes - at)];
            file.read_exact_at(block, at as u64).map_err(|error| format!("read: {error}"))?;
            sum = sum.wrapping_add(add_bytes(block));
            at += block.len();
        }
        Ok(sum)
    }))
}

/// Out of a mapping of such a file, whose pages are in the page table.
pub fn mmap_reread(ground: &Ground) -> Result<Path, Failure> {
    let mapping = Mapping::of_file(&ground.file()?, ground.bytes)?;
    Ok(Path::new(ground.bytes as u64, sum_of(ground.bytes), move || Ok(add_bytes(mapping.bytes()))))
}

/// One array into another, by the C library, whose memcpy the compiler calls for a copy of unknown length.
pub fn copy_libc(ground: &Ground) -> Result<Path, Failure> {
    copying(ground, |from, to| to.copy_from_slice(from))
}

/// The same in a loop of loads and stores, a word at a time.
pub fn copy_hand(ground: &Ground) -> Result<Path, Failure> {
    copying(ground, |from, to| {
        let (mut from, mut to) = (from.chunks_exact(8), to.chunks_exact_mut(8));
        for (from, to) in from.by_ref().zip(to.by_ref()) {
            for (from, to) in from.iter().zip(to) {
                // SAFETY: places of arrays. Volatile, so that the compiler does not call the library for the loop.
                unsafe { std::ptr::write_volatile(to, std::ptr::read_volatile(from)) };
            }
        }
        to.into_remainder().copy_from_slice(from.remainder());
    })
}

fn copying(ground: &Ground, copy: impl Fn(&[u64], &mut [u64]) + 'static) -> Result<Path, Failure> {
    let from = array(ground);
    let to = Rc::new(RefCell::new(vec![0_u64; from.len()]));
    let cleared = to.clone();
    let bytes = from.len() * 8;
    Ok(Path::new(bytes as u64, WORD, move || {
        let mut to = to.borrow_mut();
        copy(black_box(&from), black_box(&mut to));
        Ok(everywhere(&to))
    })
    .before(move || {
        // Places that the proof reads are cleared; the rest may stay in the caches.
        let mut to = cleared.borrow_mut();
        for at in places(to.len()) {
            to[at] = 0;
        }
        Ok(())
    }))
}

/// An array added up.
pub fn memory_read(ground: &Ground) -> Result<Path, Failure> {
    let array = array(ground);
    let bytes = array.len() * 8;
    Ok(Path::new(bytes as u64, sum_of(bytes), move || Ok(add(&array))))
}

/// An array filled.
pub fn memory_write(ground: &Ground) -> Result<Path, Failure> {
    let mut array = array(ground);
    let mut word = 0;
    Ok(Path::new(array.len() as u64 * 8, 1, move || {
        word += 1;
        black_box(&mut array).fill(black_box(word));
        Ok(u64::from(everywhere(&array) == word))
    }))
}

fn array(ground: &Ground) -> Vec<u64> {
    vec![WORD; (ground.bytes / 8).max(1)]
}

/// The sum of the words of an array.
fn add(words: &[u64]) -> u64 {
    black_box(words).iter().fold(0, |sum, &word| sum.wrapping_add(word))
}

/// The same of the words that bytes are.
fn add_bytes(bytes: &[u8]) -> u64 {
    let (words, _) = black_box(bytes).as_chunks();
    words.iter().fold(0, |sum, &word| sum.wrapping_add(u64::from_ne_bytes(word)))
}

/// What [`add`] must return for bytes of CONTENT.
fn sum_of(bytes: usize) -> u64 {
    WORD.wrapping_mul(bytes as u64 / 8)
}

/// The word that all looked-at places have; 0 if they differ.
fn everywhere(array: &[u64]) -> u64 {
    let first = array[0];
    if places(array.len()).all(|at| array[at] == first) { first } else { 0 }
}

/// The places that a proof looks at: few, as that is measured with the row.
fn places(words: usize) -> impl Iterator<Item = usize> {
    (0..=16).map(move |part| (words - 1) * part / 16)
}
