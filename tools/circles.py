"""Circles in a graph of imports, whatever the language: groups of nodes that all reach each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

Graph = Mapping[str, Iterable[str]]


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of two or more nodes, sorted, the largest first (Tarjan 1972)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    found: list[list[str]] = []

    def close(root: str) -> None:
        component: list[str] = []
        while not component or component[-1] != root:
            component.append(open_nodes.pop())
            is_open.discard(component[-1])
        if len(component) > 1:
            found.append(sorted(component))

    for start in graph:
        path = [] if start in numbers else [(start, iter(graph[start]))]
        while path:
            node, targets = path[-1]
            if node not in numbers:
                numbers[node] = lowest[node] = len(numbers)
                open_nodes.append(node)
                is_open.add(node)
            for target in targets:
                if target not in numbers:
                    path.append((target, iter(graph.get(target, ()))))
                    break
                if target in is_open:
                    lowest[node] = min(lowest[node], lowest[target])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    close(node)
    return sorted(found, key=lambda one: (-len(one), one))


def folded(graph: Graph, group: Callable[[str], str]) -> dict[str, set[str]]:
    """The graph of groups: an edge where a node of one imports a node of another."""
    folded_graph: dict[str, set[str]] = {}
    for node, targets in graph.items():
        here = folded_graph.setdefault(group(node), set())
        here.update(group(target) for target in targets)
        here.discard(group(node))
    return folded_graph


def largest(found: Sequence[Sequence[str]]) -> int:
    """Number of nodes in the largest circle; 0 without circles."""
    return max(map(len, found), default=0)
