/* What the row `compile` of kernel-paths compiles: a hash table of words, a sort, and an interpreter of small programs. */
typedef unsigned long word;

struct entry {
    struct entry *next;
    word key, value;
};

enum { BUCKETS = 256, STACK = 64 };
static struct entry *buckets[BUCKETS];
static struct entry entries[4096];
static unsigned used;

static word mix(word of)
{
    of ^= of >> 33;
    of *= 0xff51afd7ed558ccdUL;
    of ^= of >> 33;
    of *= 0xc4ceb9fe1a85ec53UL;
    return of ^ of >> 33;
}

struct entry *find(word key)
{
    for (struct entry *at = buckets[mix(key) % BUCKETS]; at; at = at->next)
        if (at->key == key) return at;
    return 0;
}

int put(word key, word value)
{
    struct entry *at = find(key);
    if (!at) {
        if (used == sizeof entries / sizeof *entries) return -1;
        at = &entries[used++];
        at->key = key;
        at->next = buckets[mix(key) % BUCKETS];
        buckets[mix(key) % BUCKETS] = at;
    }
    at->value = value;
    return 0;
}

static void swap(word *one, word *other)
{
    word kept = *one;
    *one = *other;
    *other = kept;
}

void sort(word *from, word *to)
{
    while (to - from > 1) {
        word *low = from, *high = to - 1, pivot = from[(to - from) / 2];
        while (low <= high) {
            while (*low < pivot) low++;
            while (*high > pivot) high--;
            if (low <= high) swap(low++, high--);
        }
        if (high - from < to - low) {
            sort(from, high + 1);
            from = low;
        } else {
            sort(low, to);
            to = high + 1;
        }
    }
}

enum operation { PUSH, ADD, SUBTRACT, MULTIPLY, DIVIDE, LOAD, STORE, JUMP, JUMP_IF_ZERO, DUPLICATE, DROP, END };

struct step {
    enum operation does;
    word with;
};

word interpret(const struct step *program)
{
    word stack[STACK], *top = stack;
    for (const struct step *at = program;; at++) {
        switch (at->does) {
        case PUSH: *top++ = at->with; break;
        case ADD: top--; top[-1] += *top; break;
        case SUBTRACT: top--; top[-1] -= *top; break;
        case MULTIPLY: top--; top[-1] *= *top; break;
        case DIVIDE: top--; top[-1] = *top ? top[-1] / *top : 0; break;
        case LOAD: {
            const struct entry *found = find(at->with);
            *top++ = found ? found->value : 0;
            break;
        }
        case STORE: put(at->with, *--top); break;
        case JUMP: at = program + at->with - 1; break;
        case JUMP_IF_ZERO: if (!*--top) at = program + at->with - 1; break;
        case DUPLICATE: top[0] = top[-1]; top++; break;
        case DROP: top--; break;
        case END: return top > stack ? top[-1] : 0;
        }
    }
}
