//! Memory nodes: the node that the kernel would choose for the thread that touches a page.
//!
//! The kernel takes the mapping's policy (mbind), otherwise the thread's (set_mempolicy, numactl), otherwise the node
//! of the processor that the thread runs on. The library's pages come from a pool that its own threads populate. So
//! there is one pool for each node, and this module determines the node for every fault. With one node, nothing of this
//! is done.

mod text;

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::boundary::sys::{self, c, nodes as calls};

use text::Path;

/// Number of distinguished nodes: those with higher numbers count as the first that has memory.
pub const MOST: usize = 16;
/// Number of distinguished processors.
const MOST_PROCESSORS: usize = 1024;

/// Nodes with memory, one bit each; 0: not read yet, or unknown.
static WITH_MEMORY: AtomicU64 = AtomicU64::new(0);
static OF_PROCESSOR: [AtomicU8; MOST_PROCESSORS] = [const { AtomicU8::new(0) }; MOST_PROCESSORS];
static DISTANCES: [[AtomicU8; MOST]; MOST] = [const { [const { AtomicU8::new(u8::MAX) }; MOST] }; MOST];

/// The nodes that pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The node of the processor, or the nearest one that has memory.
    Local,
    /// The nearest of these nodes.
    Nearest(u64),
    /// These nodes in turn, by page number.
    InTurn(u64),
}

/// Reads the machine's nodes. Called once, while the engine starts.
pub fn learn() {
    let mut text = [0u8; 4096];
    let read = |path: &Path, text: &mut [u8]| {
        let fd = sys::open(path.as_c_str(), c::O_RDONLY, 0).ok()?;
        let used = sys::read(fd, text);
        sys::close(fd);
        used.ok()
    };
    let directory = || Path::new().text("/sys/devices/system/node/");
    let Some(used) = read(&directory().text("has_memory"), &mut text) else { return };
    let mut memory = 0u64;
    text::each_in_list(text.get(..used).unwrap_or(&[]), &mut |node| {
        if node < MOST {
            memory |= 1 << node;
        }
    });
    WITH_MEMORY.store(memory, Ordering::Relaxed);
    if !are_several() {
        return;
    }
    for (node, distances) in DISTANCES.iter().enumerate() {
        let of_node = || directory().text("node").number(node);
        if let Some(used) = read(&of_node().text("/cpulist"), &mut text) {
            text::each_in_list(text.get(..used).unwrap_or(&[]), &mut |processor| {
                if let Some(place) = OF_PROCESSOR.get(processor) {
                    place.store(node as u8, Ordering::Relaxed);
                }
            });
        }
        if let Some(used) = read(&of_node().text("/distance"), &mut text) {
            let numbers = text::numbers(text.get(..used).unwrap_or(&[]));
            for (place, distance) in distances.iter().zip(numbers) {
                place.store(distance.min(254) as u8, Ordering::Relaxed);
            }
        }
    }
}

/// Whether there are several nodes, and so a choice.
pub fn are_several() -> bool {
    WITH_MEMORY.load(Ordering::Relaxed).count_ones() > 1
}

/// All nodes with memory, nearest to `node` first.
pub fn from_near(node: usize) -> impl Iterator<Item = usize> {
    let mut left = WITH_MEMORY.load(Ordering::Relaxed);
    core::iter::from_fn(move || {
        let next = nearest(node, left)?;
        left &= !(1 << next);
        Some(next)
    })
}

/// The node of `mask` that is nearest to `node`.
fn nearest(node: usize, mask: u64) -> Option<usize> {
    let distance = |to: &usize| {
        let of_node = DISTANCES.get(node).and_then(|row| row.get(*to));
        (*to != node, of_node.map_or(u8::MAX, |distance| distance.load(Ordering::Relaxed)))
    };
    (0..MOST).filter(|to| mask >> to & 1 != 0).min_by_key(distance)
}

impl Policy {
    /// The policy that the kernel would apply to a page at `addr` that thread `thread` touches.
    pub fn of(addr: usize, thread: u32) -> Policy {
        let own = calls::policy_of_mapping(addr).ok().and_then(|(mode, nodes)| Policy::of_mode(mode, nodes));
        own.or_else(|| of_thread(thread)).unwrap_or(Policy::Local)
    }

    /// The policy for `mode` as in `<linux/mempolicy.h>`; `None`: the default.
    fn of_mode(mode: u32, nodes: u64) -> Option<Policy> {
        let nodes = nodes & WITH_MEMORY.load(Ordering::Relaxed);
        match mode {
            0 => None,
            _ if nodes == 0 => Some(Policy::Local),
            1 | 2 | 5 => Some(Policy::Nearest(nodes)),
            3 | 6 => Some(Policy::InTurn(nodes)),
            _ => Some(Policy::Local),
        }
    }

    /// The node for virtual page `vpn`, touched by a thread on a processor of node `local`.
    pub fn node(self, vpn: usize, local: usize) -> usize {
        let all = WITH_MEMORY.load(Ordering::Relaxed);
        let node = match self {
            Policy::Local => nearest(local, all),
            Policy::Nearest(mask) => nearest(local, mask),
            Policy::InTurn(mask) => {
                let turn = vpn % (mask.count_ones().max(1) as usize);
                (0..MOST).filter(|node| mask >> node & 1 != 0).nth(turn)
            }
        };
        node.unwrap_or(0)
    }

    /// Whether neighbouring pages come from different nodes.
    pub fn is_in_turn(self) -> bool {
        matches!(self, Policy::InTurn(_))
    }
}

/// The policy that a thread has set for itself, or inherited; `None`: the default.
///
/// No system call reports it for another thread. `numa_maps` shows for each mapping the policy that applies to it: for
/// the first one, which is the program's text, that is the thread's.
fn of_thread(thread: u32) -> Option<Policy> {
    let mut text = [0u8; 128];
    let used = of_task(thread, "/numa_maps", &mut text)?;
    let (mode, nodes) = text::policy(text.get(..used)?)?;
    Policy::of_mode(mode, nodes)
}

/// The node of the processor that `thread` runs on, or ran on last.
pub fn of_processor_of(thread: u32) -> usize {
    let mut text = [0u8; 512];
    let processor = of_task(thread, "/stat", &mut text).and_then(|used| text::processor(text.get(..used)?));
    let node = processor.and_then(|processor| OF_PROCESSOR.get(processor));
    node.map_or(0, |node| usize::from(node.load(Ordering::Relaxed)))
}

fn of_task(thread: u32, name: &str, into: &mut [u8]) -> Option<usize> {
    let path = Path::new().text("/proc/self/task/").number(thread as usize).text(name);
    let fd = sys::open(path.as_c_str(), c::O_RDONLY, 0).ok()?;
    let used = sys::read(fd, into);
    sys::close(fd);
    used.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This is one test, because all tests share the process's tables.
    #[test]
    fn the_kernels_choice_is_followed() {
        WITH_MEMORY.store(0b1011, Ordering::Relaxed);
        for (from, row) in
            [[10, 20, 30, 40], [20, 10, 40, 30], [30, 12, 10, 11], [40, 30, 20, 10]].iter().enumerate()
        {
            for (to, distance) in row.iter().enumerate() {
                DISTANCES[from][to].store(*distance, Ordering::Relaxed);
            }
        }
        assert!(are_several());
        assert_eq!(Policy::of_mode(0, 0b11), None);
        assert_eq!(Policy::Local.node(7, 1), 1);
        assert_eq!(Policy::Local.node(7, 2), 3, "node 2 has processors only: the nearest with memory");
        assert_eq!(Policy::of_mode(2, 0b0010).unwrap().node(7, 0), 1);
        assert_eq!(Policy::of_mode(2, 0b1010).unwrap().node(7, 0), 1, "the nearest of several");
        assert_eq!(Policy::of_mode(1, 0b0100), Some(Policy::Local), "a node without memory");
        let turns = Policy::of_mode(3, 0b1011).unwrap();
        assert_eq!([3, 4, 5, 6].map(|vpn| turns.node(vpn, 0)), [0, 1, 3, 0]);
        assert!(turns.is_in_turn() && !Policy::Local.is_in_turn());
        assert_eq!(from_near(3).collect::<Vec<_>>(), [3, 1, 0]);
        WITH_MEMORY.store(0, Ordering::Relaxed);
        assert!(!are_several());
        assert_eq!(Policy::Local.node(7, 5), 0);
    }

    #[test]
    fn pages_of_this_process_are_on_some_node() {
        let here = [1u8; 8192];
        let mut found = [-1i32; 1];
        assert_eq!(calls::of_pages(here.as_ptr() as usize & !4095, &mut found), Ok(()));
        assert!(found[0] >= 0);
        assert_eq!(calls::of_pages(0x1000, &mut found), Ok(()));
        assert!(found[0] < 0, "nothing is there");
    }
}
