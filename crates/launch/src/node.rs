//! Memory nodes: which there are, and whether the one asked for can be bound to.

use crate::error::{Error, Result};
use std::fs;

const WITH_MEMORY: &str = "/sys/devices/system/node/has_memory";

/// Checks the node asked for. A machine without node files has one node, number 0.
pub fn check(asked: Option<u32>) -> Result<()> {
    let Some(node) = asked else { return Ok(()) };
    let text = fs::read_to_string(WITH_MEMORY).unwrap_or_else(|_| "0".to_owned());
    let nodes = parse_list(text.trim());
    if nodes.contains(&node) {
        return Ok(());
    }
    Err(Error::Cannot(format!(
        "cannot bind memory to node {node}: nodes with memory here: {}; run: pagelab run --node {} …",
        text.trim(),
        nodes.first().copied().unwrap_or(0)
    )))
}

/// The kernel's list format: `0-3,8`.
fn parse_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse::<u32>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(parse_list(""), [0_u32; 0]);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_with_those_that_are() {
        let message = check(Some(1000)).expect_err("no such node").to_string();
        assert!(message.contains("node 1000") && message.contains("here: 0"), "{message}");
        assert!(check(Some(0)).is_ok());
    }
}
