/* What the guests of the API share: each compares what pagelab.h's functions do and say with the process's own view of
 * its frames in /proc/self/pagemap. */
#ifndef API_H
#define API_H
#include "../frames/frames.h"
#include "pagelab.h"

/* CHECK that a call of the API returns `expected`, and leaves errno alone. */
#define CHECK_API(call, expected)                                                                          \
    do {                                                                                                   \
        errno = 4711;                                                                                      \
        int api_result_ = (call);                                                                          \
        if (api_result_ != (expected)) FAIL("%s: %d, not %s", #call, api_result_, #expected);              \
        if (errno != 4711) FAIL("%s: changed errno", #call);                                               \
    } while (0)

static inline uint64_t vpn_of(const void *at) { return (uintptr_t)at / PAGE; }

__attribute__((unused)) static struct pagelab_hint hint_of(uint32_t kind, uint32_t colors) {
    struct pagelab_hint hint = PAGELAB_HINT(kind);
    hint.colors = colors;
    return hint;
}

/* Every page is there, on a frame whose number modulo `colors` is that of its virtual page. */
#define CHECK_COLORED(at, pages, colors) check_colored_(at, pages, colors, __FILE__, __LINE__)
__attribute__((unused)) static void check_colored_(const unsigned char *at, size_t pages, uint64_t colors,
                                                   const char *file, int line) {
    size_t wrong = 0;
    for (size_t i = 0; i < pages; i++) {
        uint64_t frame = frame_of(at + i * PAGE);
        wrong += frame == 0 || frame % colors != (vpn_of(at) + i) % colors;
    }
    if (wrong) {
        dprintf(2, "%s:%d: %zu of %zu pages are not where they should be\n", file, line, wrong, pages);
        _exit(1);
    }
}

/* pagelab_frames and pagelab_colors say what the pagemap says. */
__attribute__((unused)) static void check_queries(const unsigned char *at, size_t pages, uint64_t colors) {
    uint64_t *frames = calloc(pages, sizeof *frames);
    uint32_t *color = calloc(pages, sizeof *color);
    CHECK(frames && color);
    CHECK_API(pagelab_frames(at, pages, frames), 0);
    CHECK_API(pagelab_colors(at, pages, color), 0);
    CHECK_API(pagelab_color_count(at), (int)colors);
    for (size_t i = 0; i < pages; i++) {
        uint64_t frame = frame_of(at + i * PAGE);
        CHECK(frames[i] == frame);
        CHECK(color[i] == (frame ? frame % colors : PAGELAB_NO_COLOR));
    }
    free(frames);
    free(color);
}

#endif
