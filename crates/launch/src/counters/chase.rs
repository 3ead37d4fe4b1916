//! Checks the event table on this processor with pointer chases, whose answers are known: `pagelab-launch --chase`.
//!
//! A chain of pointers, one a page or one a cache line, in random order, so that neither TLB nor cache nor prefetcher
//! can help beyond what fits. A role is right if it counts about 1 for each access in the chases that must miss, and
//! about 0 in those that must not. Only then may a row of the table be marked `verified`, with the processor named.

use super::processor::{self, Processor};
use super::role::{self, Role};
use super::session::open_allowed;
use crate::sys::memory::Words;
use crate::sys::perf::{self, Open};
use serde_json::{Value, json};
use std::io;
use std::os::fd::OwnedFd;

const PAGE: usize = 4096;
const LINE: usize = 64;
const MIB: usize = 1 << 20;
/// Accesses of one measured chase.
const ACCESSES: usize = 4_000_000;
const ROLES: [&str; 9] = [
    "tlb.hits",
    "tlb.walks",
    "tlb.walk_cycles",
    "cache.l1_misses",
    "cache.l2_misses",
    "cache.l3_misses",
    "cache.fills_l2",
    "cache.fills_l3",
    "cycles",
];

/// One chase: its name, bytes, bytes from pointer to pointer, huge pages, and the roles it must drive to 1 and to 0.
struct Chase {
    name: &'static str,
    bytes: usize,
    stride: usize,
    huge: bool,
    ones: &'static [&'static str],
    zeros: &'static [&'static str],
}

/// Sizes are chosen for the processors of the table: first-level data TLBs of 32 to 96 entries, second-level ones of
/// 512 to 4,096 (448 pages make 112 entries even where four neighbours share one); 32 to 64 KiB of L1, 256 KiB to 3 MiB
/// of L2, up to 512 MiB of L3.
const CHASES: [Chase; 5] = [
    Chase {
        name: "448 base pages",
        bytes: 448 * PAGE,
        stride: PAGE,
        huge: false,
        ones: &["tlb.hits"],
        zeros: &["tlb.walks"],
    },
    Chase {
        name: "131,072 base pages",
        bytes: 512 * MIB,
        stride: PAGE,
        huge: false,
        ones: &["tlb.walks"],
        zeros: &["tlb.hits"],
    },
    Chase {
        name: "one line a base page in 16 huge pages",
        bytes: 32 * MIB,
        stride: PAGE,
        huge: true,
        ones: &[],
        zeros: &["tlb.walks", "tlb.hits"],
    },
    Chase {
        name: "lines of 192 KiB",
        bytes: 192 << 10,
        stride: LINE,
        huge: true,
        ones: &["cache.l1_misses", "cache.fills_l2"],
        zeros: &["cache.l2_misses", "cache.l3_misses"],
    },
    Chase {
        name: "lines of 2 GiB",
        bytes: 2048 * MIB,
        stride: LINE,
        huge: true,
        ones: &["cache.l1_misses", "cache.l2_misses", "cache.l3_misses"],
        zeros: &["cache.fills_l2"],
    },
];

/// A small generator (xorshift64*, Vigna 2016): good enough to shuffle, and the same chain every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % limit
    }
}

/// Writes one cycle through all cells (Sattolo's shuffle) and returns the index of its beginning. Pointers of
/// neighbouring pages lie in different lines, or they would all compete for one set of the cache.
fn chain(words: &mut [u64], stride: usize) -> usize {
    let cells = words.len() * 8 / stride;
    let place = |cell: usize| {
        let line = if stride > LINE { cell % (stride / LINE) * LINE } else { 0 };
        (cell * stride + line) / 8
    };
    let mut order: Vec<u32> = (0..cells as u32).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for last in (1..cells).rev() {
        order.swap(last, random.below(last));
    }
    for (cell, next) in order.iter().enumerate() {
        if let Some(word) = words.get_mut(place(cell)) {
            *word = place(*next as usize) as u64;
        }
    }
    place(0)
}

fn follow(words: &[u64], mut at: usize, steps: usize) -> usize {
    for _ in 0..steps {
        at = words.get(at).map_or(0, |next| *next as usize);
    }
    std::hint::black_box(at)
}

/// Counts one role over one chase, events for each access; None where it cannot be counted.
fn count(role: &Role, words: &[u64], start: usize) -> io::Result<Option<f64>> {
    let mut sum = 0.0;
    // One event at a time, so that there is neither a group nor multiplexing.
    for part in &role.parts {
        let how = Open { pid: 0, cpu: None, leader: None, pinned: true, tree: false, stat: false };
        let counter: OwnedFd = open_allowed(&part.code, &how)?.0;
        let start = follow(words, start, words.len().min(ACCESSES));
        perf::enable(&counter)?;
        follow(words, start, ACCESSES);
        perf::disable(&counter)?;
        match perf::read(&counter)? {
            Some(reading) if reading.running_ns == reading.enabled_ns => {
                sum += part.sign as f64 * reading.count as f64
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(sum / ACCESSES as f64))
}

fn is_one(rate: f64) -> bool {
    (0.85..1.25).contains(&rate)
}

fn is_zero(rate: f64) -> bool {
    rate < 0.1
}

/// Whether a role's rates are right: `Some(true)` if all of them are the known answers, None if no answer is known.
fn verdict(role: &str, rates: &[(&Chase, Option<f64>)]) -> Option<bool> {
    let mut verdict = None;
    for (chase, rate) in rates {
        let right = match rate {
            Some(rate) if chase.ones.contains(&role) => is_one(*rate),
            Some(rate) if chase.zeros.contains(&role) => is_zero(*rate),
            None if chase.ones.contains(&role) || chase.zeros.contains(&role) => false,
            _ => continue,
        };
        verdict = Some(verdict.unwrap_or(true) && right);
    }
    verdict
}

/// Runs all chases and says, role by role, what was counted for each access.
pub fn run() -> io::Result<Value> {
    let processor = processor::own();
    let known = processor.as_ref().and_then(Processor::microarchitecture);
    let roles = role::parse(&ROLES.map(str::to_owned)).unwrap_or_default();
    let roles: Vec<Role> = roles.into_iter().filter(|role| !role.parts.is_empty()).collect();
    let mut rates: Vec<Vec<(&Chase, Option<f64>)>> = roles.iter().map(|_| Vec::new()).collect();
    for chase in &CHASES {
        let mut memory = Words::map(chase.bytes, chase.huge)?;
        let words = memory.as_slice();
        let start = chain(words, chase.stride);
        for (role, rates) in roles.iter().zip(&mut rates) {
            rates.push((chase, count(role, words, start)?));
        }
    }
    let rows = roles.iter().zip(&rates).map(|(role, rates)| {
        let counted: Vec<Value> =
            rates.iter().map(|(chase, rate)| json!({"chase": chase.name, "per_access": rate})).collect();
        json!({"role": role.name, "code": role.code, "counted": counted, "as_known": verdict(&role.name, rates)})
    });
    Ok(json!({
        "processor": processor.map(|processor| format!("{processor:?}")),
        "microarchitecture": known.map(|known| known.name),
        "accesses": ACCESSES,
        "roles": rows.collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_visits_every_cell_once_before_it_returns() {
        for (bytes, stride) in [(1 << 20, PAGE), (64 << 10, LINE)] {
            let mut memory = Words::map(bytes, false).expect("memory");
            let words = memory.as_slice();
            let start = chain(words, stride);
            let cells = bytes / stride;
            let mut seen = std::collections::HashSet::new();
            let mut at = start;
            for _ in 0..cells {
                assert!(seen.insert(at), "visited twice");
                at = words[at] as usize;
            }
            assert_eq!((at, seen.len()), (start, cells));
            let pages: std::collections::HashSet<usize> = seen.iter().map(|at| at * 8 / stride).collect();
            assert_eq!(pages.len(), cells, "one a stride");
        }
    }

    #[test]
    fn a_role_is_as_known_only_when_every_answer_came_out() {
        let rates = |first, second| [(&CHASES[0], first), (&CHASES[1], second)];
        assert_eq!(verdict("tlb.walks", &rates(Some(0.01), Some(1.02))), Some(true));
        assert_eq!(verdict("tlb.walks", &rates(Some(0.01), Some(2.0))), Some(false));
        assert_eq!(verdict("tlb.walks", &rates(Some(0.9), Some(1.0))), Some(false));
        assert_eq!(verdict("tlb.walks", &rates(None, Some(1.0))), Some(false));
        assert_eq!(verdict("tlb.walk_cycles", &rates(Some(5.0), Some(60.0))), None);
    }
}
