/* What the guest's tests share: frames of pages, hints, checks. Static C programs, run as root unless they say otherwise. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The patched kernel's own header: include/uapi/linux/page_hints.h. */
#include <linux/page_hints.h>

#define PAGE 4096UL
#define ANYWHERE (~0UL)

#define CHECK(condition, ...)                                                         \
    do {                                                                              \
        if (!(condition)) fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__);       \
    } while (0)

static inline __attribute__((noreturn, format(printf, 4, 5))) void fail(const char *file, int line, const char *what,
                                                                        const char *format, ...)
{
    va_list more;
    printf("%s:%d: %s (errno %d)", file, line, what, errno);
    va_start(more, format);
    vprintf(format, more);
    va_end(more);
    putchar('\n');
    fflush(stdout);
    _exit(1);
}

static inline int hints_of(int pid, int flags)
{
    char path[64];
    if (pid)
        snprintf(path, sizeof path, "/proc/%d/page_hints", pid);
    else
        snprintf(path, sizeof path, "/proc/self/page_hints");
    return open(path, flags);
}

/* The frame of a resident page. */
static inline uint64_t frame_of(const volatile void *address)
{
    static int pagemap = -1, owner;
    uint64_t entry = 0;
    if (owner != getpid()) {
        pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        owner = getpid();
    }
    CHECK(pread(pagemap, &entry, 8, (uintptr_t)address / PAGE * 8) == 8);
    CHECK(entry >> 63, "page %p is not resident", (void *)address);
    return entry & ((1UL << 55) - 1);
}

/* As the papers define it, without any of the kernel's shortcuts. */
static inline int color_of(uint64_t frame, unsigned colors, const unsigned long *masks, unsigned mask_count)
{
    int color = 0;
    if (!mask_count) return (int)(frame % colors);
    for (unsigned bit = 0; bit < mask_count; bit++) color |= (__builtin_popcountl(frame & masks[bit]) & 1) << bit;
    return color;
}

static inline volatile char *map(size_t pages)
{
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static inline struct page_hint hint(const char *strategy, unsigned colors)
{
    struct page_hint made = {.size = sizeof made, .colors = colors};
    snprintf(made.strategy, sizeof made.strategy, "%s", strategy);
    return made;
}

static inline struct page_hint ranged(struct page_hint of, volatile void *start, size_t pages)
{
    of.start = (uintptr_t)start;
    of.length = pages * PAGE;
    return of;
}

/* 0 or an errno. */
static inline int command(int file, unsigned long number, const void *argument)
{
    return ioctl(file, number, argument) == 0 ? 0 : errno;
}

static inline void set(unsigned long number, struct page_hint of)
{
    int file = hints_of(0, O_RDWR | O_CLOEXEC), error;
    CHECK(file >= 0);
    error = command(file, number, &of);
    CHECK(!error, "%s: error %d", of.strategy, error);
    close(file);
}

static inline struct page_hint_counters counters(void)
{
    struct page_hint_counters counted;
    int file = hints_of(0, O_RDONLY | O_CLOEXEC);
    CHECK(!command(file, PAGE_HINTS_COUNTERS, &counted));
    close(file);
    return counted;
}

static inline unsigned long fallen(struct page_hint_counters counted)
{
    return counted.absent + counted.bound + counted.watermark;
}

static inline void check_colors(volatile char *memory, size_t pages, unsigned colors)
{
    for (size_t at = 0; at < pages; at++) {
        uintptr_t page = (uintptr_t)memory / PAGE + at;
        uint64_t frame = frame_of(memory + at * PAGE);
        CHECK(frame % colors == page % colors, "page %zu: frame %lx", at, frame);
    }
}

static inline void touch(volatile char *memory, size_t pages)
{
    for (size_t at = 0; at < pages; at++) memory[at * PAGE] = (char)(at + 1);
}

static inline void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
    close(file);
}

/* A count of /proc/page_color: the word `name` in the line of `strategy`; -1: there is none. */
static inline long statistic(const char *strategy, const char *name)
{
    char line[1024];
    long found = -1;
    FILE *file = fopen("/proc/page_color", "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        char *word = strtok(line, " \n");
        if (!word || strcmp(word, strategy)) continue;
        while ((word = strtok(NULL, " \n")) != NULL)
            if (!strcmp(word, name)) found = atol(strtok(NULL, " \n"));
    }
    fclose(file);
    return found;
}

/* Pages on the free lists, as the counters have it. */
static inline long free_pages(void)
{
    char line[256];
    long free = -1;
    FILE *file;
    write_file("/proc/sys/vm/stat_refresh", "1");
    file = fopen("/proc/vmstat", "re");
    while (fgets(line, sizeof line, file)) sscanf(line, "nr_free_pages %ld", &free);
    fclose(file);
    return free;
}

/* And those on the lists of the processors, which count as used. */
static inline long free_pages_everywhere(void)
{
    char line[256];
    long free = free_pages(), count;
    FILE *file = fopen("/proc/zoneinfo", "re");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, " count: %ld", &count) == 1) free += count;
    fclose(file);
    return free;
}

/* Runs in a child; its failure is the test's. */
#define CHILD(...)                                          \
    do {                                                    \
        int status_, child_ = fork();                       \
        CHECK(child_ >= 0);                                 \
        if (!child_) {                                      \
            __VA_ARGS__;                                    \
            fflush(stdout);                                 \
            _exit(0);                                       \
        }                                                   \
        CHECK(waitpid(child_, &status_, 0) == child_);      \
        CHECK(status_ == 0, "the child's status is %x", (unsigned)status_); \
    } while (0)

#endif
