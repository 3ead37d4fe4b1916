// Complex Fourier transform in place, forward and back: fft.js --bytes N --memory once|each --repetitions R
// X(k) = sum of x(n) exp(-2 pi i k n / N), decimation in time (Cooley and Tukey 1965).
"use strict";
const { conclude, measured, option } = require("./measure.js");

const WORK = 8e6; // floating-point operations that a measurement aims at
const LINES = 4;

function fill(points) {
  const values = new Float64Array(2 * points);
  let state = 1;
  for (let place = 0; place < values.length; place++) {
    // Lehmer's generator (Park and Miller 1988): products stay exact in a double.
    state = (state * 48271) % 2147483647;
    values[place] = state / 2147483647 - 0.5;
  }
  return values;
}

function reverseBits(values, points) {
  for (let index = 0, other = 0; index < points - 1; index++) {
    if (index < other) {
      for (let part = 0; part < 2; part++) {
        const kept = values[2 * index + part];
        values[2 * index + part] = values[2 * other + part];
        values[2 * other + part] = kept;
      }
    }
    let bit = points >> 1;
    while (bit <= other) {
      other -= bit;
      bit >>= 1;
    }
    other += bit;
  }
}

function transform(values, sign) {
  const points = values.length / 2;
  reverseBits(values, points);
  for (let half = 1; half < points; half *= 2) {
    for (let offset = 0; offset < half; offset++) {
      const angle = (sign * Math.PI * offset) / half;
      const re = Math.cos(angle);
      const im = Math.sin(angle);
      for (let low = 2 * offset; low < 2 * points; low += 4 * half) {
        const high = low + 2 * half;
        const turnedRe = values[high] * re - values[high + 1] * im;
        const turnedIm = values[high] * im + values[high + 1] * re;
        values[high] = values[low] - turnedRe;
        values[high + 1] = values[low + 1] - turnedIm;
        values[low] += turnedRe;
        values[low + 1] += turnedIm;
      }
    }
  }
}

function thereAndBack(values, operations) {
  const scale = 2 / values.length;
  for (let operation = 0; operation < operations; operation++) {
    transform(values, -1);
    transform(values, 1);
    for (let place = 0; place < values.length; place++) values[place] *= scale;
  }
}

// Number of sampled lines that agree with the definition.
function rightLines(points) {
  const signal = fill(points);
  const found = fill(points);
  transform(found, -1);
  let right = 0;
  for (let number = 0; number < LINES; number++) {
    const k = 1 + Math.floor((number * (points - 1)) / LINES);
    let re = 0;
    let im = 0;
    for (let n = 0; n < points; n++) {
      const angle = (-2 * Math.PI * ((k * n) % points)) / points;
      re += signal[2 * n] * Math.cos(angle) - signal[2 * n + 1] * Math.sin(angle);
      im += signal[2 * n] * Math.sin(angle) + signal[2 * n + 1] * Math.cos(angle);
    }
    const off = Math.abs(found[2 * k] - re) + Math.abs(found[2 * k + 1] - im);
    if (off < 1e-9 * Math.sqrt(points)) right++;
  }
  return right;
}

const points = 2 ** Math.floor(Math.log2(Math.max(option("bytes", 32768) / 16, 4)));
const each = option("memory", "once", ["once", "each"]) === "each";
const operations = Math.max(1, Math.floor(WORK / (10 * points * Math.log2(points))));
let right = rightLines(points);
let values = fill(points);
for (let repetition = 0; repetition < option("repetitions", 10); repetition++) {
  if (each) values = fill(points);
  measured("fft", operations, () => thereAndBack(values, operations));
}
const wanted = fill(points);
for (let place = 0; place < wanted.length; place++) if (Math.abs(values[place] - wanted[place]) < 1e-9) right++;
conclude(right, LINES + wanted.length);
