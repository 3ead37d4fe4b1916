/* pagelab.h: a program's own say in where its pages go.
 *
 * The policy of a run (`pagelab run --frames ...`) decides which frame each page gets. With these functions a program
 * overrides it for itself: hints for ranges of addresses, a default, moving pages that are already in memory, and
 * looking at what it got. And it says which part of its work is to be measured: pagelab_begin, pagelab_end.
 * docs/api.md is the guide; examples/fft is a complete program.
 *
 * Nothing has to be linked. The functions are weak: in a position-independent program (the default of most compilers)
 * they are found when libpagelab.so has been preloaded, which `pagelab run` does, and otherwise every call
 * returns -ENOSYS and nothing happens. Programs that are not position-independent, and programs that want the library
 * always, link it: cc ... -lpagelab.
 *
 * Two backends answer: the library's engine, on any Linux from 6.8 on, and a kernel that places pages itself. The library
 * asks such a kernel under `pagelab run --backend kernel`. Programs that no library can be loaded into (static, musl, cgo)
 * compile pagelab_kernel.c into themselves: where no library is, its functions are called. docs/api.md has what differs.
 *
 * All functions return 0 (or a number, where it says so), or a negative errno; errno itself is left alone. They may be
 * called from any thread at any time, but not from signal handlers. A page is 4096 bytes. Ranges need not be aligned:
 * every page that holds a byte of the range belongs to it.
 */
#ifndef PAGELAB_H
#define PAGELAB_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface; pagelab_version() returns the library's. Later versions only add to it (3: pagelab_backend). */
#define PAGELAB_API_VERSION 3

/* What places pages. */
enum pagelab_strategy_kind {
    PAGELAB_KERNEL = 0,        /* nobody but the kernel */
    PAGELAB_PAGE_COLORING = 1, /* the colour of the virtual page */
    PAGELAB_BIN_HOPPING = 2,   /* the next colour with each page, in the order of first touch */
    PAGELAB_MODULO = 3,        /* a colour for each page: `values`, repeated */
    PAGELAB_EXACT = 4,         /* a frame for each page: `values`, frame numbers */
    PAGELAB_RANDOM = 5         /* a colour drawn from `seed` and the address */
};

/* Who answers: pagelab_backend. */
enum pagelab_backend_kind {
    PAGELAB_BY_LIBRARY = 1, /* the library's engine: a pool of pages, and a thread that answers faults */
    PAGELAB_BY_KERNEL = 2   /* the kernel's own page placement: /proc/self/page_hints */
};

/* Switches of a hint. */
#define PAGELAB_HASH_PID 1u   /* page colouring: colours turned by a hash of the process id */
#define PAGELAB_PIN 2u        /* placed pages are locked in memory, so that they stay where they are */
#define PAGELAB_DRAW_FIRST 4u /* bin hopping: the first colour is drawn from `seed` instead of being `first` */

/* In `values`: this page may lie anywhere. */
#define PAGELAB_ANYWHERE UINT64_MAX
/* Answer of pagelab_colors: the page is not in memory. */
#define PAGELAB_NO_COLOR UINT32_MAX

/* A hint. Set `size` to sizeof(struct pagelab_hint) and everything that is not needed to 0 (PAGELAB_HINT does both). */
struct pagelab_hint {
    uint32_t size;
    uint32_t strategy;     /* enum pagelab_strategy_kind */
    uint32_t colors;       /* number of colours; 0: as the policy has them, else as the second-level cache has them */
    uint32_t flags;        /* PAGELAB_HASH_PID, PAGELAB_PIN, PAGELAB_DRAW_FIRST */
    uint32_t first;        /* bin hopping: the first page's colour */
    uint32_t fault_around; /* most pages that one fault brings in; 0: as the strategy likes */
    uint64_t seed;         /* random, and bin hopping with PAGELAB_DRAW_FIRST */
    uint64_t budget_bytes; /* memory that may be held beyond what is placed; 0: as the strategy needs */
    const uint64_t *masks; /* bit i of a colour is the parity of frame & masks[i]; NULL: the colour is frame % colors */
    size_t mask_count;     /* the number of colours is 2^mask_count then */
    const uint64_t *values; /* modulo: colours, exact: frame numbers; copied. values[0] is for the first page of the
                               range (of the address space, in a default); modulo repeats them, beyond exact's last one
                               any frame will do */
    size_t value_count;
};
#define PAGELAB_HINT(kind) {sizeof(struct pagelab_hint), (kind), 0, 0, 0, 0, 0, 0, NULL, 0, NULL, 0}

/* What moving did, in pages. */
struct pagelab_moved {
    uint64_t pages;     /* of the range */
    uint64_t absent;    /* were not in memory: they are placed when they are touched */
    uint64_t in_place;  /* were where they should be, now or before */
    uint64_t elsewhere; /* are still on other frames: shared, locked, not anonymous, or no such frame was to be had */
};

/* What the engine of this process did so far; see docs/api.md and the record. */
struct pagelab_counters {
    uint64_t requests;   /* pages that were to be placed */
    uint64_t placed;     /* of these, as wanted */
    uint64_t fallbacks;  /* of these, on a frame of another colour, or another frame */
    uint64_t zero_pages; /* of these, left to the kernel */
    uint64_t faults;     /* missing-page faults answered */
    uint64_t runs;       /* moves that placed pages; several pages go in one */
    uint64_t remapped;   /* pages of existing memory that were moved */
    uint64_t copied;     /* of these, by copying them */
    uint64_t refills;    /* times the pool of free pages was filled up */
    uint64_t wait_ns;    /* time that faults waited for that */
    uint64_t pool_bytes; /* what the pool holds now */
};

#if defined(__GNUC__) && !defined(PAGELAB_STRONG)
#define PAGELAB_WEAK __attribute__((weak))
#else
#define PAGELAB_WEAK
#endif

/* Version of the library's interface, at least 1. -ENOSYS: the library is not there. */
int pagelab_version(void) PAGELAB_WEAK;

/* Who would answer a hint now: an enum pagelab_backend_kind. */
int pagelab_backend(void) PAGELAB_WEAK;

/* Starts the engine now. The first hint does it as well, and under a policy with `frames` it runs already. With the kernel
 * there is nothing to start: asks whether it would take hints.
 *   -EPERM      frame numbers need CAP_SYS_ADMIN, userfaultfd needs CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1;
 *               hints of the kernel need CAP_SYS_ADMIN or, unless exact, vm.page_hints_unprivileged=1
 *   -EOPNOTSUPP this kernel cannot move pages (Linux 6.8 or newer is needed), or has no page placement; or the process is
 *               confined by seccomp, or was made past libc (by clone)
 *   -EAGAIN     a fork does not end: another thread has left it by a jump out of a signal handler
 *   -ENOMEM     no memory for the engine */
int pagelab_start(void) PAGELAB_WEAK;

/* From now on, pages that are first touched in [addr, addr + len) are placed as the hint says: in private anonymous
 * memory (malloc, mmap) that is mapped there now. Pages that are in memory stay where they are until
 * pagelab_remap_range. An earlier hint is replaced where the two overlap.
 *   -EINVAL     the hint makes no sense: size, kind, colours, masks or values
 *   -EFAULT     part of the range is not mapped
 *   -ENOSPC     too many ranges, or too many different hints at a time
 *   -ENOENT     by the kernel: it has no such strategy (modprobe placement_...)
 *   -EOPNOTSUPP by the kernel: PAGELAB_PIN, where its series does not pin; colours of 0 where the policy has masks
 *   ... and those of pagelab_start */
int pagelab_set_range(void *addr, size_t len, const struct pagelab_hint *hint) PAGELAB_WEAK;

/* Takes hints back: the range is placed as if there had never been one. Pages stay where they are. */
int pagelab_clear_range(void *addr, size_t len) PAGELAB_WEAK;

/* The hint for heap, mappings and thread arenas that neither a range nor a rule of the policy names, from now on.
 * NULL takes it back.
 *   -EOPNOTSUPP the process was not started by `pagelab run`: it cannot be seen what it maps. By the kernel: the policy's
 *               own default could not be put back (it has lists), or strategies for some kinds of memory leave neither
 *               heap nor mappings. The kernel does not tell a rule's from the default of a policy that has rules, too, or
 *               of a program before an exec that kept it: they count as rules'
 *   ... and those of pagelab_set_range */
int pagelab_set_default(const struct pagelab_hint *hint) PAGELAB_WEAK;

/* Moves the pages that are in memory in [addr, addr + len) to where the hint (or the policy) wants them. Contents are
 * kept; other threads may go on using the memory, and wait while one of its pages moves. `moved` may be NULL.
 *   -EINVAL     nothing in the range is governed
 *   -EFAULT     part of the range is not mapped */
int pagelab_remap_range(void *addr, size_t len, struct pagelab_moved *moved) PAGELAB_WEAK;

/* Frame numbers of the first `pages` pages from addr's on; 0: not in memory.
 *   -EPERM      frame numbers need CAP_SYS_ADMIN
 *   -EFAULT     part of the range is not mapped */
int pagelab_frames(const void *addr, size_t pages, uint64_t *frames) PAGELAB_WEAK;

/* Their colours, as the strategy of each page counts them (without one, as the policy or the second-level cache does);
 * PAGELAB_NO_COLOR: not in memory. Errors as pagelab_frames, and
 *   -EOPNOTSUPP by the kernel: a page's strategy has masks, which it does not tell */
int pagelab_colors(const void *addr, size_t pages, uint32_t *colors) PAGELAB_WEAK;

/* Number of colours that pagelab_colors tells apart at addr, at least 1. */
int pagelab_color_count(const void *addr) PAGELAB_WEAK;

/* What governs the page at addr: an enum pagelab_strategy_kind, or 6 for a module of the policy. */
int pagelab_strategy_at(const void *addr) PAGELAB_WEAK;

/* Fills at most `size` bytes of `counters`, whose size is sizeof(struct pagelab_counters); all zero without engine. */
int pagelab_counters(struct pagelab_counters *counters, size_t size) PAGELAB_WEAK;

/* A window: what passes between begin and end is measured apart from the rest (start, first touch, clean-up). The run's
 * record has of each window the time, the processor time of the process and of this thread, and the page faults of the
 * process, as measurements `name`, `name.cpu`, `name.user`, `name.system`, `name.thread`, `name.faults`,
 * `name.major_faults`; a name may be used as often as you like. Windows belong to the thread that begins them; end closes
 * the one that began last. Nothing is measured where nobody records (-EOPNOTSUPP), nor in a process confined by seccomp.
 *   -EINVAL     no name, an empty one, one of more than 56 bytes; end: this thread has no window open (one that was open
 *               when the process forked is the parent's)
 *   -ENOSPC     more than 128 names, more than 8 windows inside each other, windows open in more than 128 threads; end: more
 *               than 200,000 windows, or no space for one more
 *   ... and what kept the file for them from being made */
int pagelab_begin(const char *name) PAGELAB_WEAK;
int pagelab_end(void) PAGELAB_WEAK;

/* Looks what memory the process has now, for the window that this thread began last: measurements `name.resident` and
 * `name.huge`, in bytes, of the last look inside it. It takes longer the more memory there is, which is in no time of this
 * thread's windows.
 *   -EINVAL     this thread has no window open
 *   -EOPNOTSUPP as pagelab_begin
 *   -ENOENT     a kernel before Linux 4.14
 *   ... and what kept the file that says it from being read */
int pagelab_window_placement(void) PAGELAB_WEAK;

/* The same by the kernel alone, from pagelab_kernel.c, in a program that has it compiled in. The macros below call these
 * where no library is; other languages call them by name. */
int pagelab_kernel_version(void) PAGELAB_WEAK;
int pagelab_kernel_backend(void) PAGELAB_WEAK;
int pagelab_kernel_start(void) PAGELAB_WEAK;
int pagelab_kernel_set_range(void *addr, size_t len, const struct pagelab_hint *hint) PAGELAB_WEAK;
int pagelab_kernel_clear_range(void *addr, size_t len) PAGELAB_WEAK;
int pagelab_kernel_set_default(const struct pagelab_hint *hint) PAGELAB_WEAK;
int pagelab_kernel_remap_range(void *addr, size_t len, struct pagelab_moved *moved) PAGELAB_WEAK;
int pagelab_kernel_frames(const void *addr, size_t pages, uint64_t *frames) PAGELAB_WEAK;
int pagelab_kernel_colors(const void *addr, size_t pages, uint32_t *colors) PAGELAB_WEAK;
int pagelab_kernel_color_count(const void *addr) PAGELAB_WEAK;
int pagelab_kernel_strategy_at(const void *addr) PAGELAB_WEAK;
int pagelab_kernel_counters(struct pagelab_counters *counters, size_t size) PAGELAB_WEAK;

#ifdef __cplusplus
}
#endif

#if defined(__GNUC__) && !defined(PAGELAB_STRONG)
/* Without the library the functions' addresses are null. (A macro's own name is not expanded again.) */
#define PAGELAB_EITHER(name, arguments)                                                       \
    (pagelab_##name ? pagelab_##name arguments : pagelab_kernel_##name ? pagelab_kernel_##name arguments : -ENOSYS)
#define pagelab_version() PAGELAB_EITHER(version, ())
#define pagelab_backend() PAGELAB_EITHER(backend, ())
#define pagelab_start() PAGELAB_EITHER(start, ())
#define pagelab_set_range(a, l, h) PAGELAB_EITHER(set_range, ((a), (l), (h)))
#define pagelab_clear_range(a, l) PAGELAB_EITHER(clear_range, ((a), (l)))
#define pagelab_set_default(h) PAGELAB_EITHER(set_default, (h))
#define pagelab_remap_range(a, l, m) PAGELAB_EITHER(remap_range, ((a), (l), (m)))
#define pagelab_frames(a, n, f) PAGELAB_EITHER(frames, ((a), (n), (f)))
#define pagelab_colors(a, n, c) PAGELAB_EITHER(colors, ((a), (n), (c)))
#define pagelab_color_count(a) PAGELAB_EITHER(color_count, (a))
#define pagelab_strategy_at(a) PAGELAB_EITHER(strategy_at, (a))
#define pagelab_counters(c, s) PAGELAB_EITHER(counters, ((c), (s)))
#define pagelab_begin(n) (pagelab_begin ? pagelab_begin(n) : -ENOSYS)
#define pagelab_end() (pagelab_end ? pagelab_end() : -ENOSYS)
#define pagelab_window_placement() (pagelab_window_placement ? pagelab_window_placement() : -ENOSYS)
#endif

#endif
