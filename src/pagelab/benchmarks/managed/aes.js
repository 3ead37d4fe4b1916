// Rijndael as FIPS 197 has it, encrypting and decrypting a short text: aes.js --repetitions R --operations N
// Written from the standard, byte by byte; the standard's own examples (appendices B and C) are computed first.
"use strict";
const { conclude, measured, option } = require("./measure.js");

const EXAMPLES = [
  ["2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"],
  ["000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"],
  ["000102030405060708090a0b0c0d0e0f1011121314151617", "00112233445566778899aabbccddeeff",
    "dda97ca4864cdfe06eaf70a0ec0d7191"],
  ["000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "00112233445566778899aabbccddeeff",
    "8ea2b7ca516745bfeafc49904b496089"],
];
const TEXT_BYTES = 512;

// The product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (section 4.2).
function times(a, b) {
  let product = 0;
  for (; b; b >>= 1) {
    if (b & 1) product ^= a;
    a = (a << 1) ^ (a & 0x80 ? 0x11b : 0);
  }
  return product;
}

// The S-box (5.1.1): the inverse, then an affine map.
const BOX = new Uint8Array(256);
const UNBOX = new Uint8Array(256);
for (let byte = 0; byte < 256; byte++) {
  let inverse = 0;
  for (let other = 0; other < 256; other++) if (times(byte, other) === 1) inverse = other;
  let value = 0x63;
  for (let turn = 0; turn < 5; turn++) value ^= ((inverse << turn) | (inverse >> (8 - turn))) & 0xff;
  BOX[byte] = value;
  UNBOX[value] = byte;
}
const table = (factor) => Uint8Array.from({ length: 256 }, (_, byte) => times(byte, factor));
const [BY2, BY3, BY9, BY11, BY13, BY14] = [2, 3, 9, 11, 13, 14].map(table);

// The round keys (5.2).
function expand(key) {
  const length = key.length / 4;
  const keys = new Uint8Array(16 * (length + 7));
  keys.set(key);
  let constant = 1;
  for (let i = length; i < 4 * (length + 7); i++) {
    let word = keys.slice(4 * i - 4, 4 * i);
    if (i % length === 0) {
      word = Uint8Array.of(BOX[word[1]] ^ constant, BOX[word[2]], BOX[word[3]], BOX[word[0]]);
      constant = times(constant, 2);
    } else if (length > 6 && i % length === 4) word = word.map((byte) => BOX[byte]);
    for (let part = 0; part < 4; part++) keys[4 * i + part] = keys[4 * (i - length) + part] ^ word[part];
  }
  return keys;
}

// 5.1; the state is kept column after column, as the input is. `text` is changed in place, 16 bytes from `start`.
function encrypt(text, start, keys) {
  const state = new Uint8Array(16);
  for (let i = 0; i < 16; i++) state[i] = text[start + i] ^ keys[i];
  const last = keys.length / 16 - 1;
  const next = new Uint8Array(16);
  for (let round = 1; round <= last; round++) {
    for (let i = 0; i < 16; i++) next[i] = BOX[state[(i + 4 * (i % 4)) % 16]];
    for (let c = 0; c < 16; c += 4) {
      const [a, b, d, e] = [next[c], next[c + 1], next[c + 2], next[c + 3]];
      if (round < last) {
        next[c] = BY2[a] ^ BY3[b] ^ d ^ e;
        next[c + 1] = a ^ BY2[b] ^ BY3[d] ^ e;
        next[c + 2] = a ^ b ^ BY2[d] ^ BY3[e];
        next[c + 3] = BY3[a] ^ b ^ d ^ BY2[e];
      }
    }
    for (let i = 0; i < 16; i++) state[i] = next[i] ^ keys[16 * round + i];
  }
  text.set(state, start);
}

// 5.3.
function decrypt(text, start, keys) {
  const last = keys.length / 16 - 1;
  const state = new Uint8Array(16);
  for (let i = 0; i < 16; i++) state[i] = text[start + i] ^ keys[16 * last + i];
  const next = new Uint8Array(16);
  for (let round = last - 1; round >= 0; round--) {
    for (let i = 0; i < 16; i++) next[i] = UNBOX[state[(i + 16 - 4 * (i % 4)) % 16]] ^ keys[16 * round + i];
    for (let c = 0; c < 16; c += 4) {
      const [a, b, d, e] = [next[c], next[c + 1], next[c + 2], next[c + 3]];
      state[c] = round ? BY14[a] ^ BY11[b] ^ BY13[d] ^ BY9[e] : a;
      state[c + 1] = round ? BY9[a] ^ BY14[b] ^ BY11[d] ^ BY13[e] : b;
      state[c + 2] = round ? BY13[a] ^ BY9[b] ^ BY14[d] ^ BY11[e] : d;
      state[c + 3] = round ? BY11[a] ^ BY13[b] ^ BY9[d] ^ BY14[e] : e;
    }
  }
  text.set(state, start);
}

let right = 0;
for (const [key, plain, cipher] of EXAMPLES) {
  const keys = expand(Buffer.from(key, "hex"));
  const block = Buffer.from(plain, "hex");
  encrypt(block, 0, keys);
  if (block.toString("hex") === cipher) right++;
  decrypt(block, 0, keys);
  if (block.toString("hex") === plain) right++;
}
let checked = 2 * EXAMPLES.length;
const keys = expand(Uint8Array.from({ length: 16 }, (_, place) => place));
const wanted = Buffer.alloc(TEXT_BYTES, "The quick brown fox jumps over the lazy dog. ");
const operations = option("operations", 20);
for (let repetition = 0; repetition < option("repetitions", 10); repetition++) {
  const text = Buffer.from(wanted);
  measured("aes", operations, () => {
    for (let operation = 0; operation < operations; operation++) {
      for (let start = 0; start < TEXT_BYTES; start += 16) encrypt(text, start, keys);
      for (let start = 0; start < TEXT_BYTES; start += 16) decrypt(text, start, keys);
    }
  });
  checked++;
  if (text.equals(wanted)) right++;
}
conclude(right, checked);
