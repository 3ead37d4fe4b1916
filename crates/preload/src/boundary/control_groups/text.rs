//! Parsers of the kernel's texts about control groups, and the paths to them; nothing is allocated.

use core::ffi::CStr;

use crate::boundary::sys::{self, c};

use super::{Mount, Version};

const LONGEST: usize = 256;

/// A path.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    bytes: [u8; LONGEST],
    len: usize,
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Place {
    /// An empty path.
    pub const fn new() -> Place {
        Place { bytes: [0; LONGEST], len: 0 }
    }

    /// A path with this text; `None`: it is too long.
    pub fn of(path: &[u8]) -> Option<Place> {
        let mut place = Place::new();
        place.push(path).then_some(place)
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Appends `text`, if there is room for it and a NUL.
    fn push(&mut self, text: &[u8]) -> bool {
        let end = self.len + text.len();
        match self.bytes.get_mut(self.len..end) {
            Some(part) if end < LONGEST => {
                part.copy_from_slice(text);
                self.len = end;
                true
            }
            _ => false,
        }
    }

    fn cut(&mut self, len: usize) {
        if let Some(rest) = self.bytes.get_mut(len..self.len) {
            rest.fill(0);
        }
        self.len = len;
    }

    /// Path of group `path` below this mount point, which shows `root` and the groups below it.
    pub fn below(&self, path: &[u8], root: &Place) -> Place {
        let mut place = *self;
        let path = path.strip_prefix(root.bytes()).unwrap_or(path);
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let fits = path.is_empty() || place.push(b"/") && place.push(path);
        if fits { place } else { *self }
    }

    /// The directory above, unless this is `top`.
    pub fn go_up(&mut self, top: &Place) -> bool {
        if self.len <= top.len {
            return false;
        }
        let slash = self.bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.cut(slash.max(top.len));
        true
    }

    /// The file `name` in this directory; `None`: too long.
    pub fn file(&self, name: &str) -> Option<Place> {
        let mut place = *self;
        (place.push(b"/") && place.push(name.as_bytes())).then_some(place)
    }

    /// Whether this directory exists.
    pub fn is_there(&self) -> bool {
        let fd = sys::open(self.as_c_str(), c::O_RDONLY, 0);
        fd.map(sys::close).is_ok()
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// A buffer for one read, and so for the longest line.
pub struct Line([u8; 1024]);

impl Line {
    /// An empty buffer.
    pub const fn new() -> Line {
        Line([0; 1024])
    }
}

/// Calls `visit` with the lines of a file, without their ends, until it returns false. The rest of a longer line is
/// left out.
pub fn each_line(path: &CStr, room: &mut Line, visit: &mut dyn FnMut(&[u8]) -> bool) {
    let Ok(fd) = sys::open(path, c::O_RDONLY, 0) else { return };
    let mut held = 0;
    'file: while let Some(free) = room.0.get_mut(held..) {
        let Ok(used) = sys::read(fd, free) else { break };
        let end = held + used;
        let mut first = 0;
        while let Some(len) = room.0.get(first..end).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
            if !visit(room.0.get(first..first + len).unwrap_or(&[])) {
                break 'file;
            }
            first += len + 1;
        }
        if used == 0 {
            if first < end {
                visit(room.0.get(first..end).unwrap_or(&[]));
            }
            break;
        }
        room.0.copy_within(first..end, 0);
        held = end - first;
        if held == room.0.len() {
            held = 0;
        }
    }
    sys::close(fd);
}

/// As [`each_line`], for a [`Place`].
pub fn each_line_at(place: &Place, room: &mut Line, visit: &mut dyn FnMut(&[u8]) -> bool) {
    each_line(place.as_c_str(), room, visit);
}

/// The number at the beginning of `text`, after blanks.
pub fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    let more = |value: u64, byte: &u8| value.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    (digits.clone().count() > 0).then(|| digits.clone().try_fold(0u64, more)).flatten()
}

/// The number in the first line of the file at `place` that begins with `name`; `None` for "max", too.
pub fn value(place: &Place, name: &[u8]) -> Option<u64> {
    value_in(place.as_c_str(), name)
}

/// As [`value`], for a path.
#[inline(never)]
pub fn value_in(path: &CStr, name: &[u8]) -> Option<u64> {
    let mut found = None;
    each_line(path, &mut Line::new(), &mut |line| match line.strip_prefix(name) {
        Some(rest) => {
            found = number(rest);
            false
        }
        None => true,
    });
    found
}

/// Parses a line of `mountinfo`: `Some` if a hierarchy with the memory controller, or version 2, is mounted there.
pub fn mount(line: &[u8]) -> Option<Mount> {
    let dash = line.windows(3).position(|part| part == b" - ")?;
    let (left, right) = (line.get(..dash)?, line.get(dash + 3..)?);
    let mut right = right.split(|byte| *byte == b' ');
    let (kind, options) = (right.next()?, right.nth(1)?);
    let version = match kind {
        b"cgroup2" => Version::Two,
        b"cgroup" if options.split(|byte| *byte == b',').any(|option| option == b"memory") => Version::One,
        _ => return None,
    };
    let mut left = left.split(|byte| *byte == b' ').skip(3);
    let (root, place) = (left.next()?, left.next()?);
    let root = if root == b"/" { Some(Place::new()) } else { Place::of(root) };
    Some(Mount { place: Place::of(place)?, root: root?, version })
}

/// The group in a line of `/proc/self/cgroup`, if the line is of the hierarchy with the memory controller.
pub fn own_path(line: &[u8], version: Version) -> Option<&[u8]> {
    let mut parts = line.splitn(3, |byte| *byte == b':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let fits = match version {
        Version::One => controllers.split(|byte| *byte == b',').any(|name| name == b"memory"),
        Version::Two => controllers.is_empty(),
    };
    fits.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_of_both_versions_are_known() {
        let two = mount(b"30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate").unwrap();
        assert_eq!(
            (two.version, two.place.bytes(), two.root.bytes()),
            (Version::Two, &b"/sys/fs/cgroup"[..], &b""[..])
        );
        let one = mount(b"31 23 0:27 /docker/ab /cg/memory rw - cgroup cgroup rw,memory").unwrap();
        assert_eq!(
            (one.version, one.place.bytes(), one.root.bytes()),
            (Version::One, &b"/cg/memory"[..], &b"/docker/ab"[..])
        );
        assert!(mount(b"31 23 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu").is_none());
        assert!(mount(b"22 1 8:1 / / rw - ext4 /dev/vda rw").is_none() && mount(b"nonsense").is_none());
    }

    #[test]
    fn groups_are_found_below_mount_points() {
        assert_eq!(own_path(b"4:cpu,memory:/a:b", Version::One), Some(&b"/a:b"[..]));
        assert_eq!(own_path(b"4:cpu:/a", Version::One), None);
        assert_eq!(own_path(b"0::/x/y", Version::Two), Some(&b"/x/y"[..]));
        let top = Place::of(b"/cg").unwrap();
        let root = Place::of(b"/docker/ab").unwrap();
        assert_eq!(top.below(b"/docker/ab/inner", &root).bytes(), b"/cg/inner");
        assert_eq!(top.below(b"/docker/ab", &root).bytes(), b"/cg");
        assert_eq!(top.below(b"/", &Place::new()).bytes(), b"/cg");
        assert_eq!(top.below(&[b'x'; 400], &Place::new()).bytes(), b"/cg", "too long");
        let mut place = top.below(b"/x/y", &Place::new());
        let mut seen = vec![place.bytes().to_vec()];
        while place.go_up(&top) {
            seen.push(place.bytes().to_vec());
        }
        assert_eq!(seen, [&b"/cg/x/y"[..], b"/cg/x", b"/cg"]);
        assert_eq!(place.as_c_str(), c"/cg");
    }

    #[test]
    fn lines_are_read_whole_across_pieces() {
        let path = std::env::temp_dir().join(format!("pagelab-lines-{}", std::process::id()));
        let lines: Vec<String> = (0..500).map(|number| format!("line {number}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let place = Place::of(path.to_str().unwrap().as_bytes()).unwrap();
        let mut seen = Vec::new();
        each_line_at(&place, &mut Line::new(), &mut |line| {
            seen.push(String::from_utf8(line.to_vec()).unwrap());
            true
        });
        assert_eq!(seen, lines);
        assert_eq!(value(&place, b"line 49"), None, "the first line that begins so has nothing more");
        assert_eq!((value(&place, b"line"), value(&place, b"line 12")), (Some(0), None));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn numbers_are_numbers() {
        assert_eq!(number(b"  12 kB"), Some(12));
        assert_eq!((number(b"max"), number(b""), number(b"99999999999999999999999")), (None, None, None));
    }
}
