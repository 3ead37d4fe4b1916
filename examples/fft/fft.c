/* An FFT that chooses the placement of its own arrays while it runs.
 *
 * Whether the pages of two arrays compete for the same cache sets depends on their frames, which a program normally
 * neither sees nor chooses. This one tries what pagelab offers on its own arrays (a hint for the range, then moving the
 * pages that are there), times its transforms under each, and goes on with the best. That is the self-tuning that
 * Hocko and Kalibera propose ("Reducing performance non-determinism via cache-aware page allocation strategies",
 * ICPE 2010). Where pagelab is absent, or may not place pages, it computes the same without choosing.
 *
 *     cc -O2 -I../../crates/preload/include -o fft fft.c -lm
 *     ./fft                                   works, and chooses nothing
 *     pagelab run --frames kernel -- ./fft    chooses (as root)
 *
 *     cc -O2 -static -I../../crates/preload/include -o fft-static fft.c ../../crates/preload/include/pagelab_kernel.c -lm
 *     ./fft-static                            chooses on a kernel with page placement, without any library (as root)
 *
 * Usage: fft [LOG2_POINTS [TRANSFORMS [REPEATS]]]
 *   LOG2_POINTS  points of one transform, a power of two: 16 is 1 MiB of numbers and 0.5 MiB of roots (default 16)
 *   TRANSFORMS   transforms in each measurement, on arrays of their own (default 2)
 *   REPEATS      measurements under each strategy in each of two rounds (default 7)
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "pagelab.h"

#define ROUNDS 2
#define MOST_TRANSFORMS 64
#define MOST_ARRAYS (2 * MOST_TRANSFORMS + 2)
#define MOST_REPEATS 1000

/* ---- the computation ---- */

struct fft {
    unsigned log2_points;
    size_t points;
    unsigned transforms;
    double *real[MOST_TRANSFORMS], *imaginary[MOST_TRANSFORMS];
    double *cosine, *sine; /* the roots of unity, half as many as points */
};

static void swap(double *array, size_t a, size_t b)
{
    double held = array[a];
    array[a] = array[b];
    array[b] = held;
}

static void reverse_bits(double *real, double *imaginary, size_t points)
{
    for (size_t i = 1, j = 0; i < points; i++) {
        size_t bit = points >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j |= bit;
        if (i < j) {
            swap(real, i, j);
            swap(imaginary, i, j);
        }
    }
}

/* In place, radix 2, decimation in time. */
static void transform(const struct fft *fft, double *re, double *im)
{
    reverse_bits(re, im, fft->points);
    for (size_t half = 1; half < fft->points; half *= 2) {
        size_t stride = fft->points / (2 * half);
        for (size_t block = 0; block < fft->points; block += 2 * half) {
            for (size_t k = 0; k < half; k++) {
                size_t a = block + k, b = a + half;
                double c = fft->cosine[k * stride], s = fft->sine[k * stride];
                double x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
                re[b] = re[a] - x;
                im[b] = im[a] - y;
                re[a] += x;
                im[a] += y;
            }
        }
    }
}

/* The same numbers each time, different for each transform. */
static void fill(const struct fft *fft)
{
    uint64_t seed = 1;
    for (unsigned t = 0; t < fft->transforms; t++) {
        for (size_t i = 0; i < fft->points; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            fft->real[t][i] = (double)(seed >> 40) / (1 << 24) - 0.5;
            fft->imaginary[t][i] = 0;
        }
    }
    for (size_t k = 0; k < fft->points / 2; k++) {
        double angle = -2 * M_PI * (double)k / (double)fft->points;
        fft->cosine[k] = cos(angle);
        fft->sine[k] = sin(angle);
    }
}

/* Does not depend on where pages lie: the same for every placement, with and without pagelab. */
static uint64_t checksum(const struct fft *fft)
{
    uint64_t sum = 14695981039346656037u;
    for (unsigned t = 0; t < fft->transforms; t++) {
        for (size_t i = 0; i < fft->points; i++) {
            uint64_t bits[2];
            memcpy(&bits[0], &fft->real[t][i], 8);
            memcpy(&bits[1], &fft->imaginary[t][i], 8);
            sum = ((sum ^ bits[0]) * 1099511628211u ^ bits[1]) * 1099511628211u;
        }
    }
    return sum;
}

/* Parseval: the spectrum's energy is `points` times the signal's. The relative error. */
static double parseval(const struct fft *fft, double before)
{
    double after = 0;
    for (unsigned t = 0; t < fft->transforms; t++)
        for (size_t i = 0; i < fft->points; i++)
            after += fft->real[t][i] * fft->real[t][i] + fft->imaginary[t][i] * fft->imaginary[t][i];
    return fabs(after / (double)fft->points - before) / before;
}

static double energy(const struct fft *fft)
{
    double sum = 0;
    for (unsigned t = 0; t < fft->transforms; t++)
        for (size_t i = 0; i < fft->points; i++)
            sum += fft->real[t][i] * fft->real[t][i];
    return sum;
}

/* ---- the arrays and their placement ---- */

struct array {
    void *start;
    size_t bytes;
};

static struct array arrays[MOST_ARRAYS];
static unsigned array_count;

static double *allocate(size_t numbers)
{
    size_t bytes = numbers * sizeof(double);
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        fprintf(stderr, "fft: no memory for an array of %zu bytes\n", bytes);
        exit(1);
    }
    arrays[array_count++] = (struct array){start, bytes};
    return start;
}

struct candidate {
    const char *name;
    struct pagelab_hint hint;
    int error;
    double best, seconds[ROUNDS * MOST_REPEATS];
    unsigned count;
    struct pagelab_moved moved;
};

/* As if there were no hint: fresh pages, wherever the kernel (or the policy of the run) puts them. */
static int place_anew(void)
{
    for (unsigned i = 0; i < array_count; i++) {
        (void)pagelab_clear_range(arrays[i].start, arrays[i].bytes);
        madvise(arrays[i].start, arrays[i].bytes, MADV_DONTNEED);
    }
    return 0;
}

static int place(struct candidate *candidate)
{
    if (candidate->hint.strategy == PAGELAB_KERNEL)
        return place_anew();
    memset(&candidate->moved, 0, sizeof candidate->moved);
    for (unsigned i = 0; i < array_count; i++) {
        struct pagelab_moved moved = {0, 0, 0, 0};
        int error = pagelab_set_range(arrays[i].start, arrays[i].bytes, &candidate->hint);
        if (error == 0)
            error = pagelab_remap_range(arrays[i].start, arrays[i].bytes, &moved);
        if (error != 0)
            return error;
        candidate->moved.pages += moved.pages;
        candidate->moved.in_place += moved.in_place;
        candidate->moved.elsewhere += moved.elsewhere;
    }
    return 0;
}

/* Pages of the fullest colour, as a multiple of the average; 0: it cannot be seen. */
static double imbalance(void)
{
    int colors = pagelab_color_count(arrays[0].start);
    if (colors <= 0)
        return 0;
    size_t *pages_of = calloc((size_t)colors, sizeof *pages_of), total = 0, most = 0;
    for (unsigned i = 0; i < array_count && pages_of != NULL; i++) {
        size_t pages = (arrays[i].bytes + 4095) / 4096;
        uint32_t *color = malloc(pages * sizeof *color);
        if (color != NULL && pagelab_colors(arrays[i].start, pages, color) == 0) {
            for (size_t page = 0; page < pages; page++) {
                if (color[page] < (uint32_t)colors) {
                    size_t count = ++pages_of[color[page]];
                    most = count > most ? count : most;
                    total++;
                }
            }
        }
        free(color);
    }
    free(pages_of);
    return total == 0 ? 0 : (double)most * colors / (double)total;
}

/* ---- choosing ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double run_once(const struct fft *fft)
{
    fill(fft);
    double begin = now();
    for (unsigned t = 0; t < fft->transforms; t++)
        transform(fft, fft->real[t], fft->imaginary[t]);
    return now() - begin;
}

static void try_one(const struct fft *fft, struct candidate *candidate, unsigned repeats)
{
    candidate->error = place(candidate);
    if (candidate->error != 0)
        return;
    (void)run_once(fft); /* the first touches the pages */
    for (unsigned i = 0; i < repeats; i++)
        candidate->seconds[candidate->count++] = run_once(fft);
}

static void print(const struct candidate *candidate, double balance)
{
    if (candidate->error != 0) {
        printf("  %-22s not possible: %s\n", candidate->name, strerror(-candidate->error));
        return;
    }
    const double *sorted = candidate->seconds;
    printf("  %-22s median %8.3f ms, from %8.3f to %8.3f", candidate->name, candidate->best * 1e3, sorted[0] * 1e3,
           sorted[candidate->count - 1] * 1e3);
    if (candidate->hint.strategy != PAGELAB_KERNEL)
        printf("; %llu of %llu pages in place", (unsigned long long)candidate->moved.in_place,
               (unsigned long long)candidate->moved.pages);
    if (balance > 0)
        printf("; fullest colour %.2f times the average", balance);
    printf("\n");
}

/* Two rounds, so that a machine that slows down on the way does not decide. */
static struct candidate *choose(const struct fft *fft, struct candidate *candidates, unsigned count, unsigned repeats)
{
    struct candidate *best = &candidates[0];
    double balance[8] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < count; i++) {
            if (candidates[i].error == 0) {
                try_one(fft, &candidates[i], repeats);
                balance[i] = imbalance();
            }
        }
    }
    for (unsigned i = 0; i < count; i++) {
        struct candidate *candidate = &candidates[i];
        if (candidate->error == 0) {
            qsort(candidate->seconds, candidate->count, sizeof(double), ascending);
            candidate->best = candidate->seconds[candidate->count / 2];
            if (candidate->best < best->best)
                best = candidate;
        }
        print(candidate, balance[i]);
    }
    return best;
}

static unsigned argument(int argc, char **argv, int at, unsigned otherwise, unsigned least, unsigned most)
{
    if (at >= argc)
        return otherwise;
    char *end;
    unsigned long value = strtoul(argv[at], &end, 10);
    if (*argv[at] == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "fft: argument %d is %s; usage: fft [LOG2_POINTS [TRANSFORMS [REPEATS]]]\n", at, argv[at]);
        exit(2);
    }
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    static struct candidate candidates[] = {
        {.name = "without a hint", .hint = PAGELAB_HINT(PAGELAB_KERNEL)},
        {.name = "page-coloring", .hint = PAGELAB_HINT(PAGELAB_PAGE_COLORING)},
        {.name = "bin-hopping", .hint = PAGELAB_HINT(PAGELAB_BIN_HOPPING)},
        {.name = "random, seed 1", .hint = PAGELAB_HINT(PAGELAB_RANDOM)},
        {.name = "random, seed 2", .hint = PAGELAB_HINT(PAGELAB_RANDOM)},
    };
    const unsigned count = sizeof candidates / sizeof candidates[0];
    struct fft fft = {.log2_points = argument(argc, argv, 1, 16, 2, 26)};
    fft.transforms = argument(argc, argv, 2, 2, 1, MOST_TRANSFORMS);
    unsigned repeats = argument(argc, argv, 3, 7, 1, MOST_REPEATS);
    candidates[3].hint.seed = 1;
    candidates[4].hint.seed = 2;

    fft.points = (size_t)1 << fft.log2_points;
    for (unsigned t = 0; t < fft.transforms; t++) {
        fft.real[t] = allocate(fft.points);
        fft.imaginary[t] = allocate(fft.points);
    }
    fft.cosine = allocate(fft.points / 2);
    fft.sine = allocate(fft.points / 2);

    int version = pagelab_version();
    struct candidate *best = &candidates[0];
    if (version < 0) {
        printf("pagelab is not there: the arrays stay where the kernel puts them\n");
    } else {
        printf("trying the strategies on %u arrays (pagelab interface %d, %d colours):\n", array_count, version,
               pagelab_color_count(arrays[0].start));
        best = choose(&fft, candidates, count, repeats);
        printf("kept: %s\n", best->name);
        int error = place(best);
        if (error != 0)
            printf("cannot place by it again: %s\n", strerror(-error));
    }

    fill(&fft);
    double before = energy(&fft);
    double seconds = run_once(&fft);
    printf("%u transforms of %zu points: %.3f ms\n", fft.transforms, fft.points, seconds * 1e3);
    printf("relative error of the energy: %.1e\n", parseval(&fft, before));
    printf("checksum: %016llx\n", (unsigned long long)checksum(&fft));
    return 0;
}
