"""Which host takes which place of the schedule: every place once, each block on one platform."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagelab.study import cluster, on_host
from pagelab.study.schedule import schedule


def host(name: str, alone: str | None = None) -> cluster._Host:
    found = cluster._Host(on_host.Here(1, alone or name, on_host.Platform(name, "a processor", "Linux 6"), "1"))
    found.workers[name] = found.here
    return found


@given(
    conditions=st.integers(1, 4),
    executions=st.integers(1, 6),
    warmups=st.integers(0, 3),
    hosts=st.integers(1, 4),
    data=st.data(),
)
def test_blocks_stay_whole_whoever_comes_and_whatever_dies(
    conditions: int, executions: int, warmups: int, hosts: int, data: st.DataObject
) -> None:
    slots = schedule(conditions, executions, warmups, 1)
    bound: dict[int, str] = {}
    blocks = cluster.Blocks(list(slots), bound)
    machines = [host(f"h{number}") for number in range(hosts)]
    done: dict[int, str] = {}
    deaths = 10
    while blocks.left():
        one = data.draw(st.sampled_from(machines))
        others = {other.block for other in machines if other is not one and other.block is not None}
        before = one.block
        found = blocks.take(one, others, -(-warmups // hosts))
        if found is None:
            continue  # what is left was begun by others
        slot, begins = found
        assert bound[slot.block] == one.platform
        assert begins == (slot.block not in {known.block for known in slots if known.position in done} and begins)
        assert slot.position not in done
        if before is not None and slot.block != before:
            own = [known for known in slots if known.block == before]
            assert all(known.position in done for known in own), "a block is finished before another is begun"
        one.block = slot.block
        if deaths and data.draw(st.booleans()):
            deaths -= 1
            blocks.give_back(slot)
            one.block = None if data.draw(st.booleans()) else one.block
            continue
        done[slot.position] = one.platform
    assert sorted(done) == [slot.position for slot in slots]
    for block in {slot.block for slot in slots}:
        assert len({done[slot.position] for slot in slots if slot.block == block}) == 1


def test_each_host_has_its_share_of_the_warm_ups_first() -> None:
    machines = [host("a"), host("b")]
    blocks = cluster.Blocks(schedule(1, 4, 2, 1), {})
    taken = [blocks.take(one, set(), 1) for one in (machines[0], machines[0], machines[1], machines[1])]
    assert [found[0].block for found in taken if found] == [-2, 0, -1, 1]


def test_warm_ups_of_which_a_host_has_its_share_are_run_at_the_end_if_nobody_else_comes() -> None:
    one = host("a")
    blocks = cluster.Blocks(schedule(1, 2, 2, 1), {})
    order = []
    while (found := blocks.take(one, set(), 1)) is not None:
        order.append(found[0].block)
    assert order == [-2, 0, 1, -1]


def test_two_hosts_of_one_name_do_not_share_a_block() -> None:
    """As cloned machines: the platform says the same, but only one of them is in the block."""
    first, second = host("a", "boot 1"), host("a", "boot 2")
    blocks = cluster.Blocks(schedule(2, 2, 0, 1), {})
    found = blocks.take(first, set(), 0)
    assert found is not None
    first.block = found[0].block
    other = blocks.take(second, {first.block}, 0)
    assert other is not None
    assert other[0].block != found[0].block
