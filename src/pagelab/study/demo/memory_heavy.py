"""A program of the demonstration that needs memory: a dictionary of strings, looked up in random order."""

import random

COUNT = 200_000

names = [f"name-{number:07d}" for number in range(COUNT)]
ages = {name: number for number, name in enumerate(names)}
random.seed(1)
random.shuffle(names)
total = sum(ages[name] for name in names)
assert total == COUNT * (COUNT - 1) // 2
