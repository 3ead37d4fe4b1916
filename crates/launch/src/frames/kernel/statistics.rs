//! `/proc/page_color`: one line a strategy, of words and counts.

use super::PageColor;
use std::collections::BTreeMap;

const PATH: &str = "/proc/page_color";

/// The counts of all strategies, since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(PageColor);

impl Statistics {
    /// The present counts; empty on a kernel without the series.
    pub fn read() -> Statistics {
        Statistics::parse(&std::fs::read_to_string(PATH).unwrap_or_default())
    }

    fn parse(text: &str) -> Statistics {
        Statistics(text.lines().filter_map(strategy).collect())
    }

    /// The strategies.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// What was counted since `before`, of the strategies that counted anything; the longest search is of all time.
    pub fn since(self, before: &Statistics) -> PageColor {
        let mut found = PageColor::new();
        for (name, counts) in self.0 {
            let earlier = before.0.get(&name);
            let difference = |(word, count): (String, u64)| {
                let then = earlier.and_then(|counts| counts.get(&word)).copied().unwrap_or(0);
                let since = if word == "longest" { count } else { count.saturating_sub(then) };
                (word, since)
            };
            let counts: BTreeMap<String, u64> = counts.into_iter().map(difference).collect();
            if counts.iter().any(|(word, &count)| word != "longest" && count > 0) {
                found.insert(name, counts);
            }
        }
        found
    }
}

/// `NAME WORD COUNT … orders COUNT COUNT …`: orders become `order_0`, `order_1` …
fn strategy(line: &str) -> Option<(String, BTreeMap<String, u64>)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?.to_owned();
    let mut counts = BTreeMap::new();
    while let Some(word) = words.next() {
        if word == "orders" {
            let orders = words.by_ref().map_while(|count| count.parse().ok());
            counts.extend(orders.enumerate().map(|(order, count)| (format!("order_{order}"), count)));
        } else {
            counts.insert(word.to_owned(), words.next()?.parse().ok()?);
        }
    }
    Some((name, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "bin-hopping placed 5 unasked 0 absent 1 bound 0 watermark 0 scanned 9 longest 4 drained 0 orders 3 2\n\
                          random placed 7 unasked 0 absent 0 bound 0 watermark 0 scanned 7 longest 1 drained 0 orders 7 0\n";
    const AFTER: &str = "bin-hopping placed 15 unasked 0 absent 1 bound 0 watermark 0 scanned 30 longest 6 drained 1 orders 3 12\n\
                         random placed 7 unasked 0 absent 0 bound 0 watermark 0 scanned 7 longest 1 drained 0 orders 7 0\n";

    #[test]
    fn only_what_was_counted_meanwhile_is_told() {
        let found = Statistics::parse(AFTER).since(&Statistics::parse(BEFORE));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["bin-hopping"]);
        let counts = &found["bin-hopping"];
        assert_eq!((counts["placed"], counts["absent"], counts["scanned"]), (10, 0, 21));
        assert_eq!((counts["longest"], counts["order_0"], counts["order_1"]), (6, 0, 10));
    }

    #[test]
    fn words_that_are_no_counts_are_no_strategy() {
        assert!(Statistics::parse("").names().is_empty());
        assert!(Statistics::parse("modulo placed many\n").names().is_empty());
        assert_eq!(Statistics::parse(AFTER).names(), ["bin-hopping", "random"]);
    }
}
