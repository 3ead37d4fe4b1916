//! Parsers of the kernel's texts about nodes, and the paths to them; nothing is allocated.

use core::ffi::CStr;

const LONGEST: usize = 96;

/// A path, built piece by piece.
pub struct Path {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Path {
    /// An empty path.
    pub const fn new() -> Path {
        Path { bytes: [0; LONGEST], len: 0 }
    }

    fn push(&mut self, byte: u8) {
        // The last byte stays 0.
        if self.len + 1 < LONGEST
            && let Some(place) = self.bytes.get_mut(self.len)
        {
            *place = byte;
            self.len += 1;
        }
    }

    /// Appends `text`.
    pub fn text(mut self, text: &str) -> Path {
        text.bytes().for_each(|byte| self.push(byte));
        self
    }

    /// Appends `number`.
    pub fn number(mut self, number: usize) -> Path {
        let mut divisor = 1;
        while number / divisor >= 10 {
            divisor *= 10;
        }
        while divisor > 0 {
            self.push(b'0' + (number / divisor % 10) as u8);
            divisor /= 10;
        }
        self
    }

    /// The path as a string for system calls.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits
        .clone()
        .fold(0usize, |value, byte| value.saturating_mul(10).saturating_add(usize::from(byte - b'0')));
    (digits.count() > 0).then_some(value)
}

/// Calls `visit` for each number of a list such as `0-3,8`.
pub fn each_in_list(text: &[u8], visit: &mut dyn FnMut(usize)) {
    for part in text.split(|byte| *byte == b',') {
        let Some(first) = number(part) else { continue };
        let dash = part.iter().position(|byte| *byte == b'-');
        let last = dash.and_then(|dash| number(part.get(dash + 1..)?)).unwrap_or(first);
        (first..=last.min(first + (1 << 14))).for_each(&mut *visit);
    }
}

/// Parses numbers separated by spaces.
pub fn numbers(text: &[u8]) -> impl Iterator<Item = usize> {
    text.split(|byte| byte.is_ascii_whitespace()).filter_map(number)
}

/// The processor in `/proc/PID/stat`: the 39th field. (The second is a name, in parentheses, with anything in it.)
pub fn processor(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    number(stat.get(name_end + 2..)?.split(|byte| *byte == b' ').nth(36)?)
}

/// Mode (as in `<linux/mempolicy.h>`) and nodes in the first line of `numa_maps`: `ADDRESS MODE[=FLAGS][:NODES] …`.
pub fn policy(line: &[u8]) -> Option<(u32, u64)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let text = line.get(space + 1..)?;
    let text = text.get(..text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len()))?;
    // Longer names first.
    const MODES: [(&[u8], u32); 7] = [
        (b"prefer (many)", 5),
        (b"prefer", 1),
        (b"bind", 2),
        (b"weighted interleave", 6),
        (b"interleave", 3),
        (b"local", 4),
        (b"default", 0),
    ];
    let (name, mode) = MODES.iter().find(|(name, _)| text.starts_with(name))?;
    let rest = text.get(name.len()..)?;
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    let rest = rest.get(..end)?;
    let mut nodes = 0u64;
    if let Some(colon) = rest.iter().position(|byte| *byte == b':') {
        each_in_list(rest.get(colon + 1..)?, &mut |node| {
            if node < 64 {
                nodes |= 1 << node;
            }
        });
    }
    Some((*mode, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_together() {
        let path = Path::new().text("/a/node").number(0).text("/x").number(40_960);
        assert_eq!(path.as_c_str(), c"/a/node0/x40960");
        let long = (0..40).fold(Path::new(), |path, _| path.text("longer"));
        assert_eq!(long.as_c_str().count_bytes(), LONGEST - 1);
    }

    #[test]
    fn lists_are_read() {
        let list = |text: &[u8]| {
            let mut found = Vec::new();
            each_in_list(text, &mut |number| found.push(number));
            found
        };
        assert_eq!(list(b"0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list(b"0\n"), [0]);
        assert_eq!(list(b"\n"), [0usize; 0]);
        assert_eq!(numbers(b"10 20 20\n").collect::<Vec<_>>(), [10, 20, 20]);
    }

    #[test]
    fn the_processor_comes_after_the_name() {
        let mut stat = String::from("77 (a) 1 2 (b) R");
        (4..=52).for_each(|field| stat.push_str(&format!(" {field}")));
        assert_eq!(processor(stat.as_bytes()), Some(39));
        assert_eq!(processor(b"77 (a"), None);
    }

    #[test]
    fn policies_are_read_as_the_kernel_writes_them() {
        assert_eq!(policy(b"55d0c0a5e000 default file=/bin/x mapped=3"), Some((0, 0)));
        assert_eq!(policy(b"400000 bind:1 file=/bin/x"), Some((2, 0b10)));
        assert_eq!(policy(b"400000 bind=static:0-1,3\n600000 default"), Some((2, 0b1011)));
        assert_eq!(policy(b"400000 prefer:0"), Some((1, 1)));
        assert_eq!(policy(b"400000 prefer (many):0-1 file=/x"), Some((5, 0b11)));
        assert_eq!(policy(b"400000 interleave:0,2 x=1:2"), Some((3, 0b101)));
        assert_eq!(policy(b"400000 weighted interleave:1 file"), Some((6, 0b10)));
        assert_eq!(policy(b"400000 local"), Some((4, 0)));
        assert_eq!(policy(b"400000"), None);
        assert_eq!(policy(b"400000 strange"), None);
    }
}
