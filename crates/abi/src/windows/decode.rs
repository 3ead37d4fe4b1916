//! Reading windows files (the launcher's side; allocates). The program may have written any bytes into its file.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};

use super::{
    DEPTH, EVENTS, HANDED_BYTES, HANDED_MAGIC, HEAD_BYTES, HandedCounter, HandedFile, MAGIC, NAME_BYTES, NAMES,
    NOT_COUNTED, NameSlot, OpenSlot, PlacedSlot, THREADS, ThreadSlot, ToldSlot, UsageSlot, VERSION, WINDOWS,
    WindowSlot, WindowsFile,
};

/// Time and usage in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "field by field as in UsageSlot")]
pub struct Usage {
    pub wall_ns: u64,
    pub thread_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
}

/// Memory of the process at the last look inside a window, in bytes; see [`PlacedSlot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "field by field as in PlacedSlot")]
pub struct Placed {
    pub resident: u64,
    pub huge: u64,
}

/// A window that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Index of its name.
    pub name: usize,
    /// CLOCK_MONOTONIC at its begin.
    pub begin_ns: u64,
    /// Findings on memory in it; `None`: the memory was not looked at.
    pub placed: Option<Placed>,
    /// Time and usage in it.
    pub used: Usage,
    /// Counts of the run's counters in it, in the order in which they were handed over; `None`: not counted.
    pub counts: [Option<u64>; EVENTS],
}

/// Calls without a window, or with a doubtful one; see [`ToldSlot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "field by field as in ToldSlot")]
pub struct Told {
    pub not_begun: u64,
    pub begun_twice: u64,
    pub too_deep: u64,
    pub names_left_out: u64,
    pub threads_left_out: u64,
    pub windows_left_out: u64,
}

/// A decoded file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Names.
    pub names: Vec<String>,
    /// Windows that have ended.
    pub ended: Vec<Measured>,
    /// Names (by index) of windows that never ended, one for each.
    pub open: Vec<usize>,
    /// Counts of wrong calls.
    pub told: Told,
    /// Number of the run's counters that the image had.
    pub events: usize,
}

/// The file that lists the descriptors of counters; those beyond [`EVENTS`] are left out.
#[must_use]
pub fn handed(counters: &[HandedCounter]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HANDED_BYTES);
    let kept = counters.iter().take(EVENTS);
    let words = [HANDED_MAGIC, kept.len() as u64].into_iter();
    for word in words.chain(kept.flat_map(|counter| [counter.descriptor, counter.id])) {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.resize(HANDED_BYTES, 0);
    const { assert!(offset_of!(HandedFile, counters) == 16 && size_of::<HandedCounter>() == 16) };
    bytes
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|raw| raw.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn usage(bytes: &[u8], at: usize) -> Usage {
    let word = |offset| word(bytes, at + offset);
    Usage {
        wall_ns: word(offset_of!(UsageSlot, wall_ns)),
        thread_ns: word(offset_of!(UsageSlot, thread_ns)),
        user_ns: word(offset_of!(UsageSlot, user_ns)),
        system_ns: word(offset_of!(UsageSlot, system_ns)),
        minor_faults: word(offset_of!(UsageSlot, minor_faults)),
        major_faults: word(offset_of!(UsageSlot, major_faults)),
    }
}

fn placed(bytes: &[u8], at: usize) -> Option<Placed> {
    let word = |offset| word(bytes, at + offset);
    (word(offset_of!(PlacedSlot, looked)) == 1).then(|| Placed {
        resident: word(offset_of!(PlacedSlot, resident)),
        huge: word(offset_of!(PlacedSlot, huge)),
    })
}

fn names(head: &[u8]) -> Vec<String> {
    let name = |number: usize| {
        let at = offset_of!(WindowsFile, names) + number * size_of::<NameSlot>();
        let used = usize::try_from(word(head, at)).unwrap_or(NAME_BYTES).min(NAME_BYTES);
        let text = at + offset_of!(NameSlot, text);
        (used > 0).then(|| String::from_utf8_lossy(head.get(text..text + used).unwrap_or(&[])).into_owned())
    };
    (0..NAMES).map_while(name).collect()
}

fn told(head: &[u8]) -> Told {
    let word = |offset| word(head, offset_of!(WindowsFile, told) + offset);
    Told {
        not_begun: word(offset_of!(ToldSlot, not_begun)),
        begun_twice: word(offset_of!(ToldSlot, begun_twice)),
        too_deep: word(offset_of!(ToldSlot, too_deep)),
        names_left_out: word(offset_of!(ToldSlot, names_left_out)),
        threads_left_out: word(offset_of!(ToldSlot, threads_left_out)),
        windows_left_out: word(offset_of!(ToldSlot, windows_left_out)),
    }
}

impl Windows {
    /// Bytes of ended windows that follow [`HEAD_BYTES`] bytes of a file. `None`: this is no finished windows file.
    #[must_use]
    pub fn ended_bytes(head: &[u8]) -> Option<usize> {
        let is_one = head.len() >= HEAD_BYTES
            && word(head, offset_of!(WindowsFile, magic)) == MAGIC
            && word(head, offset_of!(WindowsFile, version)) == VERSION;
        let count = word(head, offset_of!(WindowsFile, count)).min(WINDOWS as u64);
        is_one.then_some(count as usize * size_of::<WindowSlot>())
    }

    /// Decodes a file from its head and the ended windows behind it.
    #[must_use]
    pub fn decode(head: &[u8], ended: &[u8]) -> Windows {
        let names = names(head);
        let events = word(head, offset_of!(WindowsFile, events)).min(EVENTS as u64) as usize;
        let named = |number: u64| usize::try_from(number).ok().filter(|&number| number < names.len());
        let window = |at: usize| {
            Some(Measured {
                name: named(word(ended, at + offset_of!(WindowSlot, name)).wrapping_sub(1))?,
                begin_ns: word(ended, at + offset_of!(WindowSlot, begin_ns)),
                placed: placed(ended, at + offset_of!(WindowSlot, placed)),
                used: usage(ended, at + offset_of!(WindowSlot, used)),
                counts: core::array::from_fn(|event| {
                    let count = word(ended, at + offset_of!(WindowSlot, counts) + 8 * event);
                    (event < events && count != NOT_COUNTED).then_some(count)
                }),
            })
        };
        let open_in = |thread: usize| {
            let at = offset_of!(WindowsFile, threads) + thread * size_of::<ThreadSlot>();
            let depth = match word(head, at + offset_of!(ThreadSlot, thread)) {
                0 => 0,
                _ => word(head, at + offset_of!(ThreadSlot, depth)).min(DEPTH as u64) as usize,
            };
            let open = at + offset_of!(ThreadSlot, open);
            let name =
                move |level: usize| word(head, open + level * size_of::<OpenSlot>() + offset_of!(OpenSlot, name));
            (0..depth).map(name)
        };
        Windows {
            ended: (0..ended.len() / size_of::<WindowSlot>())
                .filter_map(|slot| window(slot * size_of::<WindowSlot>()))
                .collect(),
            open: (0..THREADS).flat_map(open_in).filter_map(named).collect(),
            told: told(head),
            names,
            events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    fn head(count: u64) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES];
        put(&mut head, 0, MAGIC);
        put(&mut head, offset_of!(WindowsFile, version), VERSION);
        put(&mut head, offset_of!(WindowsFile, count), count);
        let name = offset_of!(WindowsFile, names);
        put(&mut head, name, 4);
        head[name + 8..name + 12].copy_from_slice(b"load");
        head
    }

    #[test]
    fn what_was_written_is_read() {
        let mut head = head(2);
        let thread = offset_of!(WindowsFile, threads) + 3 * size_of::<ThreadSlot>();
        put(&mut head, thread, 0x7f00);
        put(&mut head, thread + offset_of!(ThreadSlot, depth), 1);
        put(&mut head, offset_of!(WindowsFile, told) + offset_of!(ToldSlot, begun_twice), 5);
        put(&mut head, offset_of!(WindowsFile, events), 2);
        let bytes = Windows::ended_bytes(&head).expect("a windows file");
        let mut ended = vec![0; bytes];
        put(&mut ended, offset_of!(WindowSlot, name), 1);
        put(&mut ended, offset_of!(WindowSlot, begin_ns), 7);
        put(&mut ended, offset_of!(WindowSlot, used) + offset_of!(UsageSlot, user_ns), 9);
        put(&mut ended, offset_of!(WindowSlot, placed) + offset_of!(PlacedSlot, looked), 1);
        put(&mut ended, offset_of!(WindowSlot, placed) + offset_of!(PlacedSlot, huge), 11);
        for (event, count) in [13, NOT_COUNTED, 17].into_iter().enumerate() {
            put(&mut ended, offset_of!(WindowSlot, counts) + 8 * event, count);
        }
        let windows = Windows::decode(&head, &ended);
        assert_eq!(windows.names, ["load"]);
        let placed = Some(Placed { resident: 0, huge: 11 });
        let used = Usage { user_ns: 9, ..Usage::default() };
        let mut counts = [None; EVENTS];
        counts[0] = Some(13);
        assert_eq!(windows.events, 2);
        assert_eq!(windows.ended, [Measured { name: 0, begin_ns: 7, placed, used, counts }]);
        assert_eq!(windows.open, [0]);
        assert_eq!(windows.told, Told { begun_twice: 5, ..Told::default() });
    }

    #[test]
    fn counters_beyond_the_last_are_left_out() {
        let many: Vec<_> = (0..EVENTS as u64 + 3).map(|id| HandedCounter { descriptor: 1000 + id, id }).collect();
        let bytes = handed(&many);
        assert_eq!((bytes.len(), word(&bytes, 8)), (HANDED_BYTES, EVENTS as u64));
        assert_eq!((word(&bytes, HANDED_BYTES - 16), word(&bytes, HANDED_BYTES - 8)), (1015, 15));
        assert_eq!(handed(&many[..1]).len(), HANDED_BYTES);
    }

    #[test]
    fn lies_are_bounded() {
        let mut head = head(u64::MAX);
        assert_eq!(Windows::ended_bytes(&head), Some(WINDOWS * size_of::<WindowSlot>()));
        let mut ended = vec![0xff; 10 * size_of::<WindowSlot>()];
        put(&mut ended, 0, 2);
        assert_eq!(Windows::decode(&head, &ended).ended, []);
        head[offset_of!(WindowsFile, names)..].fill(0xff);
        let windows = Windows::decode(&head, &ended);
        assert_eq!((windows.names.len(), windows.open.len()), (NAMES, 0));
        head[0] = 0;
        assert_eq!(Windows::ended_bytes(&head), None);
    }
}
