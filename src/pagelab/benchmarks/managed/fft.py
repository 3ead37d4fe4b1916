"""Complex Fourier transform in place, forward and back: ``fft.py --bytes N --memory once|each --repetitions R``.

X(k) = sum of x(n) exp(-2 pi i k n / N), decimation in time (Cooley and Tukey 1965). Numbers lie in one array.
"""

import math
import random
from array import array

from measure import conclude, measured, option

WORK = 200_000
"""Floating-point operations that a measurement aims at: some tens of milliseconds of an interpreter."""
LINES = 4


def fill(points):
    """The signal: the same at each call."""
    draw = random.Random(1)
    return array("d", (draw.random() - 0.5 for _ in range(2 * points)))


def reverse_bits(values, points):
    other = 0
    for index in range(points - 1):
        if index < other:
            low, high = 2 * index, 2 * other
            values[low], values[high] = values[high], values[low]
            values[low + 1], values[high + 1] = values[high + 1], values[low + 1]
        bit = points >> 1
        while bit <= other:
            other -= bit
            bit >>= 1
        other += bit


def transform(values, sign):
    points = len(values) // 2
    reverse_bits(values, points)
    half = 1
    while half < points:
        for offset in range(half):
            angle = sign * math.pi * offset / half
            re, im = math.cos(angle), math.sin(angle)
            for low in range(2 * offset, 2 * points, 4 * half):
                high = low + 2 * half
                high_re, high_im = values[high], values[high + 1]
                turned_re, turned_im = high_re * re - high_im * im, high_re * im + high_im * re
                low_re, low_im = values[low], values[low + 1]
                values[low], values[low + 1] = low_re + turned_re, low_im + turned_im
                values[high], values[high + 1] = low_re - turned_re, low_im - turned_im
        half *= 2


def there_and_back(values, operations):
    scale = 2.0 / len(values)
    for _ in range(operations):
        transform(values, -1.0)
        transform(values, 1.0)
        for place in range(len(values)):
            values[place] *= scale


def line(values, k):
    """One line of the spectrum by its definition."""
    points = len(values) // 2
    re = im = 0.0
    for n in range(points):
        angle = -2 * math.pi * (k * n % points) / points
        cos, sin = math.cos(angle), math.sin(angle)
        re += values[2 * n] * cos - values[2 * n + 1] * sin
        im += values[2 * n] * sin + values[2 * n + 1] * cos
    return re, im


def right_lines(points):
    """Number of lines that equal their definition: round trips alone would not prove a Fourier transform."""
    signal, found = fill(points), fill(points)
    transform(found, -1.0)
    right = 0
    for k in (1 + number * (points - 1) // LINES for number in range(LINES)):
        re, im = line(signal, k)
        right += abs(found[2 * k] - re) + abs(found[2 * k + 1] - im) < 1e-9 * math.sqrt(points)
    return right


def main():
    size, memory = option("bytes", 32768), option("memory", "once", ("once", "each"))
    points = 1 << (max(size // 16, 4).bit_length() - 1)
    operations = max(1, WORK // (10 * points * (points.bit_length() - 1)))
    right, checked = right_lines(points), LINES
    values = fill(points)
    for _ in range(option("repetitions", 10)):
        if memory == "each":
            del values
            values = fill(points)
        measured("fft", operations, lambda values=values: there_and_back(values, operations))
    wanted = fill(points)
    right += sum(abs(a - b) < 1e-9 for a, b in zip(values, wanted))
    conclude(right, checked + len(wanted))


if __name__ == "__main__":
    main()
