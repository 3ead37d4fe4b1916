/* pagelab_strategy.h: a placement strategy of one's own, as a shared object.
 *
 * A module exports one constant, `pagelab_strategy`, and is named by the policy:
 *
 *     frames = { module = { path = "./mine.so", argument = "..." } }
 *
 * `pagelab run` loads it into the program behind libpagelab.so. Its functions are called by pagelab's own thread, one
 * call at a time, while threads of the program wait for the page. So they must be quick, and they must not
 *   - call libc, but for functions that only compute (memcpy, strlen ...): no malloc, no stdio, no locks, no errno;
 *   - use thread-local storage;
 *   - use memory of the program, which may be the very page that is missing. Their memory is `state`, their stack
 *     (16 KiB of it), and what the module itself defines.
 *
 *     cc -O2 -shared -fPIC -o mine.so mine.c
 *
 * examples/strategies holds a complete one, docs/api.md describes it.
 */
#ifndef PAGELAB_STRATEGY_H
#define PAGELAB_STRATEGY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAGELAB_STRATEGY_VERSION 1u

/* Flag: `want` depends on the address alone, so that pages may be placed ahead, several at a time. */
#define PAGELAB_STRATEGY_BY_ADDRESS 1u

/* What a module is told. */
struct pagelab_strategy_setup {
    uint32_t version; /* PAGELAB_STRATEGY_VERSION */
    uint32_t colors;  /* number of colours, at least 1 */
    uint32_t pid;     /* the process; a forked child calls init again */
    uint32_t reserved;
    uint64_t seed;        /* the policy's `seed` */
    const char *argument; /* the policy's `argument`, or "" */
};

/* The table that a module exports. */
struct pagelab_strategy {
    uint32_t version;     /* PAGELAB_STRATEGY_VERSION */
    uint32_t flags;       /* PAGELAB_STRATEGY_BY_ADDRESS, or 0 */
    uint64_t state_bytes; /* size of the state, at most 1 MiB */
    uint64_t period;      /* by address: after so many pages the answers repeat; 0: never */
    const char *name;
    /* Prepares the state, which is zeroed and aligned to 4096 bytes. 0, or an errno: then nothing is placed by it. May
     * be null. */
    int (*init)(void *state, const struct pagelab_strategy_setup *setup);
    /* What the page with number vpn (address / 4096) wants: one of the three below. Called once a page, in the order in
     * which pages are placed. */
    uint64_t (*want)(void *state, uint64_t vpn);
    /* The last `count` answers were not used: those pages were not placed after all. May be null. */
    void (*take_back)(void *state, uint64_t count);
};

/* Answers of `want`. */
#define PAGELAB_WANT_ANY UINT64_MAX                                    /* whatever is there */
#define PAGELAB_WANT_COLOR(color) ((uint64_t)(color))                  /* a frame of this colour */
#define PAGELAB_WANT_FRAME(frame) ((uint64_t)(frame) | UINT64_C(1) << 63) /* this frame */

extern const struct pagelab_strategy pagelab_strategy __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif

#endif
