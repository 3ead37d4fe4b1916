import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Rijndael as FIPS 197 has it, encrypting and decrypting a short text: Aes --repetitions R --operations N.
 * Written from the standard, byte by byte; the standard's own examples (appendices B and C) are computed first.
 */
final class Aes {
    private static final String[][] EXAMPLES = {
        {"2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"},
        {"000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"},
        {"000102030405060708090a0b0c0d0e0f1011121314151617", "00112233445566778899aabbccddeeff",
            "dda97ca4864cdfe06eaf70a0ec0d7191"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "00112233445566778899aabbccddeeff",
            "8ea2b7ca516745bfeafc49904b496089"},
    };
    private static final int TEXT_BYTES = 512;
    private static final int[] BOX = new int[256];
    private static final int[] UNBOX = new int[256];
    private static final int[] BY2 = table(2);
    private static final int[] BY3 = table(3);
    private static final int[] BY9 = table(9);
    private static final int[] BY11 = table(11);
    private static final int[] BY13 = table(13);
    private static final int[] BY14 = table(14);

    static {
        // The S-box (5.1.1): the inverse, then an affine map.
        for (int value = 0; value < 256; value++) {
            int inverse = 0;
            for (int other = 0; other < 256; other++) {
                inverse = times(value, other) == 1 ? other : inverse;
            }
            int image = 0x63;
            for (int turn = 0; turn < 5; turn++) {
                image ^= (inverse << turn | inverse >> (8 - turn)) & 0xff;
            }
            BOX[value] = image;
            UNBOX[image] = value;
        }
    }

    private Aes() {}

    /** The product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (section 4.2). */
    private static int times(int a, int b) {
        int product = 0;
        for (; b != 0; b >>= 1) {
            product ^= (b & 1) != 0 ? a : 0;
            a = a << 1 ^ ((a & 0x80) != 0 ? 0x11b : 0);
        }
        return product;
    }

    private static int[] table(int factor) {
        int[] products = new int[256];
        Arrays.setAll(products, value -> times(value, factor));
        return products;
    }

    /** The round keys (5.2). */
    private static int[] expand(int[] key) {
        int length = key.length / 4;
        int[] keys = Arrays.copyOf(key, 16 * (length + 7));
        int constant = 1;
        for (int i = length; i < 4 * (length + 7); i++) {
            int[] word = Arrays.copyOfRange(keys, 4 * i - 4, 4 * i);
            if (i % length == 0) {
                word = new int[] {BOX[word[1]] ^ constant, BOX[word[2]], BOX[word[3]], BOX[word[0]]};
                constant = times(constant, 2);
            } else if (length > 6 && i % length == 4) {
                word = Arrays.stream(word).map(value -> BOX[value]).toArray();
            }
            for (int part = 0; part < 4; part++) {
                keys[4 * i + part] = keys[4 * (i - length) + part] ^ word[part];
            }
        }
        return keys;
    }

    /** 5.1; the state is kept column after column, as the input is. Changes 16 numbers of text from start. */
    private static void encrypt(int[] text, int start, int[] keys) {
        int last = keys.length / 16 - 1;
        int[] state = new int[16];
        int[] next = new int[16];
        for (int i = 0; i < 16; i++) {
            state[i] = text[start + i] ^ keys[i];
        }
        for (int round = 1; round <= last; round++) {
            for (int i = 0; i < 16; i++) {
                next[i] = BOX[state[(i + 4 * (i % 4)) % 16]];
            }
            for (int c = 0; c < 16 && round < last; c += 4) {
                int a = next[c];
                int b = next[c + 1];
                int d = next[c + 2];
                int e = next[c + 3];
                next[c] = BY2[a] ^ BY3[b] ^ d ^ e;
                next[c + 1] = a ^ BY2[b] ^ BY3[d] ^ e;
                next[c + 2] = a ^ b ^ BY2[d] ^ BY3[e];
                next[c + 3] = BY3[a] ^ b ^ d ^ BY2[e];
            }
            for (int i = 0; i < 16; i++) {
                state[i] = next[i] ^ keys[16 * round + i];
            }
        }
        System.arraycopy(state, 0, text, start, 16);
    }

    /** 5.3. */
    private static void decrypt(int[] text, int start, int[] keys) {
        int last = keys.length / 16 - 1;
        int[] state = new int[16];
        int[] next = new int[16];
        for (int i = 0; i < 16; i++) {
            state[i] = text[start + i] ^ keys[16 * last + i];
        }
        for (int round = last - 1; round >= 0; round--) {
            for (int i = 0; i < 16; i++) {
                next[i] = UNBOX[state[(i + 16 - 4 * (i % 4)) % 16]] ^ keys[16 * round + i];
            }
            for (int c = 0; c < 16; c += 4) {
                int a = next[c];
                int b = next[c + 1];
                int d = next[c + 2];
                int e = next[c + 3];
                state[c] = round > 0 ? BY14[a] ^ BY11[b] ^ BY13[d] ^ BY9[e] : a;
                state[c + 1] = round > 0 ? BY9[a] ^ BY14[b] ^ BY11[d] ^ BY13[e] : b;
                state[c + 2] = round > 0 ? BY13[a] ^ BY9[b] ^ BY14[d] ^ BY11[e] : d;
                state[c + 3] = round > 0 ? BY11[a] ^ BY13[b] ^ BY9[d] ^ BY14[e] : e;
            }
        }
        System.arraycopy(state, 0, text, start, 16);
    }

    private static int[] fromHex(String digits) {
        int[] bytes = new int[digits.length() / 2];
        Arrays.setAll(bytes, place -> Integer.parseInt(digits.substring(2 * place, 2 * place + 2), 16));
        return bytes;
    }

    public static void main(String[] words) throws Exception {
        int right = 0;
        for (String[] example : EXAMPLES) {
            int[] keys = expand(fromHex(example[0]));
            int[] block = fromHex(example[1]);
            encrypt(block, 0, keys);
            right += Arrays.equals(block, fromHex(example[2])) ? 1 : 0;
            decrypt(block, 0, keys);
            right += Arrays.equals(block, fromHex(example[1])) ? 1 : 0;
        }
        int checked = 2 * EXAMPLES.length;
        int[] keys = expand(fromHex(EXAMPLES[1][0]));
        byte[] phrase = "The quick brown fox jumps over the lazy dog. ".getBytes(StandardCharsets.US_ASCII);
        int[] wanted = new int[TEXT_BYTES];
        Arrays.setAll(wanted, place -> phrase[place % phrase.length]);
        int operations = Measure.option(words, "operations", 20);
        for (int repetition = 0; repetition < Measure.option(words, "repetitions", 10); repetition++) {
            int[] text = wanted.clone();
            long begin = System.nanoTime();
            for (int operation = 0; operation < operations; operation++) {
                for (int start = 0; start < TEXT_BYTES; start += 16) {
                    encrypt(text, start, keys);
                }
                for (int start = 0; start < TEXT_BYTES; start += 16) {
                    decrypt(text, start, keys);
                }
            }
            Measure.report("aes", System.nanoTime() - begin, operations);
            checked++;
            right += Arrays.equals(text, wanted) ? 1 : 0;
        }
        Measure.conclude(right, checked);
    }
}
