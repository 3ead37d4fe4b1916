//! Sets of addresses as disjoint, merged intervals, with first-fit search for gaps.
//!
//! The set is a treap ordered by start. Each node stores the extent and the largest inner gap of its subtree, so
//! inserting, removing and finding the lowest gap of some length take O(log n). Nodes lie in the guest's own mapping
//! ([`slab`]), never in the program's heap. A sorted array was rejected, because programs with tens of thousands of
//! holes are exactly those whose placement is studied.

mod slab;
#[cfg(test)]
mod tests;

use crate::boundary::span::{Span, align_up};

use slab::{NIL, Node, Slab};

/// The error that there is no memory for another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A set of addresses.
pub struct Intervals {
    slab: Slab,
    root: u32,
    seed: u32,
    bytes: usize,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals::new()
    }
}

impl Intervals {
    /// The empty set.
    pub const fn new() -> Intervals {
        Intervals { slab: Slab::new(), root: NIL, seed: 0x9e37_79b9, bytes: 0 }
    }

    /// Makes sure that `changes` insertions or removals cannot fail.
    pub fn reserve(&mut self, changes: u32) -> Result<(), Full> {
        self.slab.reserve(2 * changes)
    }

    /// Number of intervals.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.slab.live()
    }

    /// Bytes in the set.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first interval that ends after `addr`.
    pub fn next_after(&self, addr: usize) -> Option<Span> {
        let mut at = self.root;
        let mut best = None;
        while at != NIL {
            let node = self.slab.get(at);
            if node.end > addr {
                best = Some(Span::new(node.start, node.end));
                at = node.left;
            } else {
                at = node.right;
            }
        }
        best
    }

    /// Whether all of `span` is in the set (an empty span is).
    pub fn covers(&self, span: Span) -> bool {
        span.is_empty() || self.next_after(span.start).is_some_and(|i| i.start <= span.start && i.end >= span.end)
    }

    /// Whether any of `span` is in the set.
    pub fn overlaps(&self, span: Span) -> bool {
        !span.is_empty() && self.next_after(span.start).is_some_and(|i| i.start < span.end)
    }

    /// Gaps that are long enough but for their start, at most: then only gaps that are long enough for any start count.
    const TRIES: u32 = 64;

    /// The lowest multiple of `align` (a power of two) such that `len` bytes from there lie in `bounds` and outside
    /// the set. (After many gaps that only their start makes too short, the next place that is found quickly.)
    pub fn first_fit(&self, bounds: Span, len: usize, align: usize) -> Option<usize> {
        let mut from = bounds.start;
        if self.root != NIL {
            let mut tries = Self::TRIES;
            let mut found = self.fit(self.root, from, len, align, &mut tries);
            if tries == 0 && found.is_none() {
                tries = 1;
                let roomy = self.fit(self.root, from, len.checked_add(align - 1)?, 1, &mut tries);
                found = roomy.and_then(|start| align_up(start, align));
            }
            if let Some(found) = found
                && found.checked_add(len)? <= bounds.end
            {
                return Some(found);
            }
            from = from.max(self.slab.get(self.root).high);
        }
        let start = align_up(from, align)?;
        (start.checked_add(len)? <= bounds.end).then_some(start)
    }

    fn fit(&self, at: u32, from: usize, len: usize, align: usize, tries: &mut u32) -> Option<usize> {
        if at == NIL || *tries == 0 {
            return None;
        }
        let node = self.slab.get(at);
        if node.high <= from || node.gap.max(node.low.saturating_sub(from)) < len {
            return None;
        }
        if let Some(found) = self.fit(node.left, from, len, align, tries) {
            return Some(found);
        }
        let before = if node.left == NIL { from } else { from.max(self.slab.get(node.left).high) };
        let start = align_up(before, align)?;
        if start.checked_add(len)? <= node.start {
            return Some(start);
        }
        if before.checked_add(len)? <= node.start {
            *tries = tries.saturating_sub(1);
        }
        self.fit(node.right, from.max(node.end), len, align, tries)
    }

    /// Adds `span`, and merges it with the intervals that it touches. On [`Full`] nothing has changed.
    pub fn insert(&mut self, span: Span) -> Result<(), Full> {
        if span.is_empty() {
            return Ok(());
        }
        self.slab.reserve(2)?;
        self.cut(span);
        let (left, right) = self.split(self.root, span.start);
        let mut merged = span;
        let (left, last) = self.pop_last(left);
        let left = match last {
            Some(last) if last.end == span.start => {
                merged.start = last.start;
                left
            }
            Some(last) => self.append(left, last),
            None => left,
        };
        let (first, right) = self.pop_first(right);
        let right = match first {
            Some(first) if first.start == span.end => {
                merged.end = first.end;
                right
            }
            Some(first) => self.prepend(first, right),
            None => right,
        };
        let middle = self.append(left, merged);
        self.root = self.merge(middle, right);
        self.bytes += span.len();
        Ok(())
    }

    /// Removes `span`. On [`Full`] nothing has changed.
    pub fn remove(&mut self, span: Span) -> Result<(), Full> {
        if !self.overlaps(span) {
            return Ok(());
        }
        self.slab.reserve(2)?;
        self.cut(span);
        Ok(())
    }

    /// Removes `span`; needs at most one more node, which the caller has reserved.
    fn cut(&mut self, span: Span) {
        let (left, rest) = self.split(self.root, span.start);
        let (middle, right) = self.split(rest, span.end);
        let (left, last) = self.pop_last(left);
        let mut tail = Span::new(0, 0);
        let left = match last {
            Some(last) => {
                self.bytes -= last.and(span).len();
                tail = Span::new(span.end, last.end);
                self.append(left, Span::new(last.start, last.end.min(span.start)))
            }
            None => left,
        };
        if middle != NIL {
            tail = Span::new(span.end, self.slab.get(middle).high);
            self.bytes -= self.drop_tree(middle);
            self.bytes += tail.len();
        }
        let right = self.prepend(tail, right);
        self.root = self.merge(left, right);
    }

    fn append(&mut self, tree: u32, span: Span) -> u32 {
        let node = self.node(span);
        self.merge(tree, node)
    }

    fn prepend(&mut self, span: Span, tree: u32) -> u32 {
        let node = self.node(span);
        self.merge(node, tree)
    }

    fn node(&mut self, span: Span) -> u32 {
        if span.is_empty() {
            return NIL;
        }
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        let at = self.slab.take();
        let seed = self.seed;
        *self.slab.get_mut(at) = Node {
            start: span.start,
            end: span.end,
            low: span.start,
            high: span.end,
            gap: 0,
            left: NIL,
            right: NIL,
            priority: seed,
        };
        at
    }

    fn update(&mut self, at: u32) {
        let mut node = *self.slab.get(at);
        (node.low, node.high, node.gap) = (node.start, node.end, 0);
        if node.left != NIL {
            let left = self.slab.get(node.left);
            node.low = left.low;
            node.gap = node.gap.max(left.gap).max(node.start - left.high);
        }
        if node.right != NIL {
            let right = self.slab.get(node.right);
            node.high = right.high;
            node.gap = node.gap.max(right.gap).max(right.low - node.end);
        }
        *self.slab.get_mut(at) = node;
    }

    /// Splits a tree into the nodes that start before `key`, and the others.
    fn split(&mut self, at: u32, key: usize) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let node = *self.slab.get(at);
        if node.start < key {
            let (left, right) = self.split(node.right, key);
            self.slab.get_mut(at).right = left;
            self.update(at);
            (at, right)
        } else {
            let (left, right) = self.split(node.left, key);
            self.slab.get_mut(at).left = right;
            self.update(at);
            (left, at)
        }
    }

    /// Merges two trees into one; all of `left` lies before `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.slab.get(left).priority >= self.slab.get(right).priority {
            let inner = self.slab.get(left).right;
            let merged = self.merge(inner, right);
            self.slab.get_mut(left).right = merged;
            self.update(left);
            left
        } else {
            let inner = self.slab.get(right).left;
            let merged = self.merge(left, inner);
            self.slab.get_mut(right).left = merged;
            self.update(right);
            right
        }
    }

    fn pop_last(&mut self, tree: u32) -> (u32, Option<Span>) {
        if tree == NIL {
            return (NIL, None);
        }
        let mut at = tree;
        while self.slab.get(at).right != NIL {
            at = self.slab.get(at).right;
        }
        let last = self.slab.get(at).start;
        let (rest, popped) = self.split(tree, last);
        let node = *self.slab.get(popped);
        self.slab.give_back(popped);
        (rest, Some(Span::new(node.start, node.end)))
    }

    fn pop_first(&mut self, tree: u32) -> (Option<Span>, u32) {
        if tree == NIL {
            return (None, NIL);
        }
        let low = self.slab.get(tree).low;
        let (popped, rest) = self.split(tree, low + 1);
        let node = *self.slab.get(popped);
        self.slab.give_back(popped);
        (Some(Span::new(node.start, node.end)), rest)
    }

    /// Gives back all nodes of a tree; returns the bytes of their intervals.
    fn drop_tree(&mut self, at: u32) -> usize {
        if at == NIL {
            return 0;
        }
        let node = *self.slab.get(at);
        self.slab.give_back(at);
        node.end - node.start + self.drop_tree(node.left) + self.drop_tree(node.right)
    }
}
