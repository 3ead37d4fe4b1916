"""Rijndael by FIPS 197, encrypting and decrypting a short text: ``aes.py --repetitions R --operations N``.

Written from the standard, byte by byte, so that it is this program that is measured and no library. The standard's own
examples (appendices B and C) are computed first.
"""

from measure import conclude, measured, option

EXAMPLES = (
    ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
    ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    (
        "000102030405060708090a0b0c0d0e0f1011121314151617",
        "00112233445566778899aabbccddeeff",
        "dda97ca4864cdfe06eaf70a0ec0d7191",
    ),
    (
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "00112233445566778899aabbccddeeff",
        "8ea2b7ca516745bfeafc49904b496089",
    ),
)
TEXT_BYTES = 512


def times(a, b):
    """The product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (section 4.2)."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = (a << 1) ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def substitution():
    """The S-box (5.1.1): the inverse, then an affine map."""
    box = []
    for byte in range(256):
        inverse = next((other for other in range(256) if times(byte, other) == 1), 0)
        value = 0x63
        for turn in range(5):
            value ^= (inverse << turn | inverse >> (8 - turn)) & 0xFF
        box.append(value)
    return box


BOX = substitution()
UNBOX = [BOX.index(byte) for byte in range(256)]
BY = {factor: [times(byte, factor) for byte in range(256)] for factor in (2, 3, 9, 11, 13, 14)}
SHIFTED = [(place + 4 * (place % 4)) % 16 for place in range(16)]
UNSHIFTED = [(place - 4 * (place % 4)) % 16 for place in range(16)]


def expand(key):
    """The round keys (5.2), 16 bytes each."""
    length = len(key) // 4
    words = [list(key[4 * i : 4 * i + 4]) for i in range(length)]
    constant = 1
    for i in range(length, 4 * (length + 7)):
        word = list(words[-1])
        if i % length == 0:
            word = [BOX[byte] for byte in word[1:] + word[:1]]
            word[0] ^= constant
            constant = times(constant, 2)
        elif length > 6 and i % length == 4:
            word = [BOX[byte] for byte in word]
        words.append([a ^ b for a, b in zip(words[i - length], word)])
    return [[byte for word in words[i : i + 4] for byte in word] for i in range(0, len(words), 4)]


def encrypt(block, keys):
    """5.1; the state is kept column after column, as the input is."""
    two, three = BY[2], BY[3]
    state = [a ^ b for a, b in zip(block, keys[0])]
    for number in range(1, len(keys)):
        state = [BOX[state[place]] for place in SHIFTED]
        if number < len(keys) - 1:
            mixed = []
            for c in (0, 4, 8, 12):
                a, b, d, e = state[c : c + 4]
                mixed += [two[a] ^ three[b] ^ d ^ e, a ^ two[b] ^ three[d] ^ e]
                mixed += [a ^ b ^ two[d] ^ three[e], three[a] ^ b ^ d ^ two[e]]
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[number])]
    return state


def decrypt(block, keys):
    """5.3."""
    nine, eleven, thirteen, fourteen = BY[9], BY[11], BY[13], BY[14]
    state = [a ^ b for a, b in zip(block, keys[-1])]
    for number in range(len(keys) - 2, -1, -1):
        state = [UNBOX[state[place]] for place in UNSHIFTED]
        state = [a ^ b for a, b in zip(state, keys[number])]
        if number > 0:
            mixed = []
            for c in (0, 4, 8, 12):
                a, b, d, e = state[c : c + 4]
                mixed += [
                    fourteen[a] ^ eleven[b] ^ thirteen[d] ^ nine[e],
                    nine[a] ^ fourteen[b] ^ eleven[d] ^ thirteen[e],
                ]
                mixed += [
                    thirteen[a] ^ nine[b] ^ fourteen[d] ^ eleven[e],
                    eleven[a] ^ thirteen[b] ^ nine[d] ^ fourteen[e],
                ]
            state = mixed
    return state


def over_text(step, text, keys):
    """``step`` on every block, each after the other."""
    result = []
    for start in range(0, len(text), 16):
        result += step(text[start : start + 16], keys)
    return result


def main():
    right = 0
    for key, plain, cipher in EXAMPLES:
        keys = expand(bytes.fromhex(key))
        found = bytes(encrypt(bytes.fromhex(plain), keys))
        right += found.hex() == cipher
        right += bytes(decrypt(found, keys)).hex() == plain
    checked = 2 * len(EXAMPLES)
    keys = expand(bytes(range(16)))
    text = list(b"The quick brown fox jumps over the lazy dog. " * (TEXT_BYTES // 45 + 1))[:TEXT_BYTES]
    operations = option("operations", 1)

    def work():
        back = text
        for _ in range(operations):
            back = over_text(decrypt, over_text(encrypt, back, keys), keys)
        return back

    for _ in range(option("repetitions", 10)):
        right += measured("aes", operations, work) == text
        checked += 1
    conclude(right, checked)


if __name__ == "__main__":
    main()
