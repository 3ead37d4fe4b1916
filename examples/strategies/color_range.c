/* A strategy module: page colouring in part of the cache.
 *
 * The argument names the first and the last colour, for example "8-15". The memory it governs uses these colours alone,
 * by address; everything else keeps the others to itself if it is given the complement. That partitions a cache between
 * a data structure that is used again and one that only streams by.
 *
 *     cc -O2 -shared -fPIC -I../../crates/preload/include -o color_range.so color_range.c
 *     pagelab run --frames 'module:path=./color_range.so,argument=8-15' -- CMD
 */
#include <errno.h>

#include "pagelab_strategy.h"

struct range {
    uint64_t first;
    uint64_t count;
};

/* A decimal number at *text, which is moved behind it; -1: there is none. */
static int64_t number(const char **text)
{
    int64_t value = -1;
    for (; **text >= '0' && **text <= '9' && value < 1000000; ++*text)
        value = (value < 0 ? 0 : value * 10) + (**text - '0');
    return value;
}

static int init(void *state, const struct pagelab_strategy_setup *setup)
{
    struct range *range = state;
    const char *text = setup->argument;
    int64_t first = number(&text);
    int64_t last = first;
    if (*text == '-') {
        ++text;
        last = number(&text);
    }
    if (*text != '\0' || first < 0 || last < first || last >= (int64_t)setup->colors)
        return EINVAL;
    range->first = (uint64_t)first;
    range->count = (uint64_t)(last - first + 1);
    return 0;
}

static uint64_t want(void *state, uint64_t vpn)
{
    const struct range *range = state;
    return PAGELAB_WANT_COLOR(range->first + vpn % range->count);
}

const struct pagelab_strategy pagelab_strategy = {
    .version = PAGELAB_STRATEGY_VERSION,
    .flags = PAGELAB_STRATEGY_BY_ADDRESS,
    .state_bytes = sizeof(struct range),
    .name = "color-range",
    .init = init,
    .want = want,
};
