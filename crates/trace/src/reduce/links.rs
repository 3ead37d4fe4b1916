//! Doubly linked lists over numbered nodes: every node is in at most one list.

/// No node.
pub(super) const NONE: u32 = u32::MAX;
/// Not in any list.
const OUT: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    front: u32,
    back: u32,
    length: usize,
}

/// Lists in the order of the last reference, newest first.
pub(super) struct Lists {
    links: Vec<Link>,
    ends: Vec<Ends>,
}

impl Lists {
    pub fn new(lists: usize) -> Lists {
        Lists { links: Vec::new(), ends: vec![Ends { front: NONE, back: NONE, length: 0 }; lists] }
    }

    #[inline]
    pub fn back(&self, list: usize) -> u32 {
        self.ends[list].back
    }

    #[inline]
    pub fn length(&self, list: usize) -> usize {
        self.ends[list].length
    }

    /// Moves a node to the front of a list, or puts it there: then true. And the node that this pushes out of a list of
    /// `capacity` nodes, or [`NONE`].
    #[inline]
    pub fn touch(&mut self, list: usize, node: u32, capacity: usize) -> (bool, u32) {
        if self.ends[list].front == node {
            return (false, NONE);
        }
        if self.links.len() <= node as usize {
            self.links.resize(node as usize + 1, Link { newer: OUT, older: OUT });
        }
        let new = self.links[node as usize].newer == OUT;
        if !new {
            self.unlink(list, node);
        }
        let ends = &mut self.ends[list];
        self.links[node as usize] = Link { newer: NONE, older: ends.front };
        match ends.front {
            NONE => ends.back = node,
            front => self.links[front as usize].newer = node,
        }
        ends.front = node;
        ends.length += 1;
        if ends.length <= capacity {
            return (new, NONE);
        }
        let last = ends.back;
        self.unlink(list, last);
        (new, last)
    }

    fn unlink(&mut self, list: usize, node: u32) {
        let Link { newer, older } = self.links[node as usize];
        let ends = &mut self.ends[list];
        match newer {
            NONE => ends.front = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => ends.back = newer,
            older => self.links[older as usize].newer = newer,
        }
        ends.length -= 1;
        self.links[node as usize] = Link { newer: OUT, older: OUT };
    }
}
