//! The treap against a naive set of pages, with every invariant checked after every step.

use crate::boundary::span::align_down;

use super::*;
use std::collections::BTreeSet;

const PAGES: usize = 200;

fn model_spans(model: &BTreeSet<usize>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for &page in model {
        match spans.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => spans.push(Span::new(page, page + 1)),
        }
    }
    spans
}

fn spans(set: &Intervals) -> Vec<Span> {
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(span) = set.next_after(from) {
        all.push(span);
        from = span.end;
    }
    all
}

fn naive_fit(model: &BTreeSet<usize>, bounds: Span, len: usize, align: usize) -> Option<usize> {
    (bounds.start..bounds.end)
        .filter(|start| start % align == 0 && start + len <= bounds.end)
        .find(|&start| (start..start + len).all(|page| !model.contains(&page)))
}

/// Checks the order, the heap property, and the three numbers that each node stores for its subtree.
fn validate(set: &Intervals, at: u32) -> Option<(usize, usize, usize)> {
    if at == NIL {
        return None;
    }
    let node = *set.slab.get(at);
    assert!(node.start < node.end);
    for child in [node.left, node.right] {
        assert!(child == NIL || set.slab.get(child).priority <= node.priority);
    }
    let (left, right) = (validate(set, node.left), validate(set, node.right));
    let (mut low, mut high, mut gap) = (node.start, node.end, 0);
    if let Some((l, h, g)) = left {
        assert!(h < node.start, "touching intervals must be merged");
        (low, gap) = (l, gap.max(g).max(node.start - h));
    }
    if let Some((l, h, g)) = right {
        assert!(l > node.end, "touching intervals must be merged");
        (high, gap) = (h, gap.max(g).max(l - node.end));
    }
    assert_eq!((node.low, node.high, node.gap), (low, high, gap));
    Some((low, high, gap))
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn it_is_the_naive_set() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let (mut set, mut model) = (Intervals::new(), BTreeSet::new());
        for _ in 0..300 {
            let start = random.below(PAGES);
            let span = Span::new(start, start + random.below(PAGES / 8));
            if random.below(2) == 0 {
                set.insert(span).unwrap();
                model.extend(span.start..span.end);
            } else {
                set.remove(span).unwrap();
                model.retain(|page| !(span.start..span.end).contains(page));
            }
            validate(&set, set.root);
            assert_eq!(spans(&set), model_spans(&model), "seed {seed}");
            assert_eq!(set.bytes(), model.len());
            assert_eq!(set.count(), model_spans(&model).len());
            let probe = Span::new(random.below(PAGES), PAGES);
            let probe = Span::new(probe.start, probe.start + random.below(20));
            assert_eq!(set.covers(probe), (probe.start..probe.end).all(|page| model.contains(&page)));
            assert_eq!(set.overlaps(probe), (probe.start..probe.end).any(|page| model.contains(&page)));
            let bounds = Span::new(random.below(PAGES), PAGES + random.below(50));
            let (len, align) = (1 + random.below(12), 1 << random.below(5));
            assert_eq!(set.first_fit(bounds, len, align), naive_fit(&model, bounds, len, align), "seed {seed}");
        }
    }
}

#[test]
fn many_intervals_outgrow_the_first_mapping() {
    let mut set = Intervals::new();
    for i in 0..20_000 {
        set.insert(Span::new(i * 4, i * 4 + 2)).unwrap();
    }
    validate(&set, set.root);
    assert_eq!(set.count(), 20_000);
    assert_eq!(set.first_fit(Span::new(0, 1 << 20), 3, 1), Some(79_998));
    set.remove(Span::new(0, 1 << 20)).unwrap();
    assert_eq!((set.count(), set.bytes()), (0, 0));
}

#[test]
fn gaps_that_start_badly_are_not_searched_to_the_last() {
    for (bad, expected) in [(10, 24), (20_000, 40)] {
        let mut set = Intervals::new();
        set.insert(Span::new(0, 1)).unwrap();
        // The gap before each has room for eight, but not from a multiple of eight on.
        for i in 0..bad {
            set.insert(Span::new(i * 16 + 10, i * 16 + 17)).unwrap();
        }
        let last = bad * 16;
        set.insert(Span::new(last + 8, last + 24)).unwrap();
        set.insert(Span::new(last + 32, last + 40)).unwrap();
        let found = set.first_fit(Span::new(0, 1 << 30), 8, 8);
        assert_eq!(found, Some(last + expected), "after {bad} gaps");
    }
}

#[test]
fn rounding_does_not_wrap() {
    assert_eq!(align_up(usize::MAX - 5, 4096), None);
    assert_eq!(align_up(4097, 4096), Some(8192));
    assert_eq!(align_down(8191, 4096), 4096);
}
