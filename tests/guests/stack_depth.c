/* How many bytes of its caller's stack each call takes: prints one line a call, "name bytes". The call runs on a stack of
 * its own that was painted before; the deepest byte that lost its paint tells. */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define STACK (64 * KIB)
#define PAINT 0xA5
#define BLOCK (16 * MIB)

static ucontext_t back, there;
static void (*call)(void);
static unsigned char *block;
static char *const nothing[] = {NULL};
static char *const true_argv[] = {"true", NULL};
extern char **environ;

static void small_map(void) { block = mmap(NULL, 64 * KIB, RW, ANON, -1, 0); }
static void small_unmap(void) { munmap(block, 64 * KIB); }
static void map(void) { block = mmap(NULL, BLOCK, RW, ANON, -1, 0); }
static void unmap(void) { munmap(block, BLOCK); }
static void unmap_part(void) { munmap(block + 3 * MIB, 9 * MIB); }
static void grow(void) { block = mremap(block, BLOCK, 2 * BLOCK, MREMAP_MAYMOVE); }
static void shrink(void) { block = mremap(block, BLOCK, BLOCK / 2, 0); }
static void protect(void) { mprotect(block + MIB, 9 * MIB, PROT_NONE); }
static void protect_page(void) { mprotect(block + 5 * MIB, PAGE, PROT_READ); }
static void discard(void) { madvise(block, BLOCK, MADV_DONTNEED); }
static void advise(void) { posix_madvise(block, BLOCK, POSIX_MADV_WILLNEED); }
static void raise_break(void) { sbrk(16 << 20); }
static void lower_break(void) { sbrk(-(16 << 20)); }
static void map_over(void) { mmap(block + MIB, 9 * MIB, RW, ANON | MAP_FIXED, -1, 0); }
static void failing_exec(void) { execve("/nowhere/at-all", nothing, nothing); }
static void ask_prctl(void) { prctl(PR_GET_DUMPABLE); }
static void ask_syscall(void) { syscall(SYS_getppid); }
static void exec_true(void) { execve("/bin/true", true_argv, environ); }
static void end(void) { _exit(42); }

static void end_in_seccomp(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = 1, .filter = &allow};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(9);
    _exit(42);
}

static void nothing_before(void) {}
static void touched(void) {
    map();
    memset(block, 1, BLOCK);
}
static void touched_break(void) {
    raise_break();
    memset((char *)sbrk(0) - (16 << 20), 1, 16 << 20);
}

static const struct {
    const char *name;
    void (*before)(void), (*call)(void);
    int ends; /* the process, by this exit code less one */
} calls[] = {
    {"mmap-64K", nothing_before, small_map, 0},
    {"munmap-64K", small_map, small_unmap, 0},
    {"mmap", nothing_before, map, 0},
    {"munmap", touched, unmap, 0},
    {"munmap-part", touched, unmap_part, 0},
    {"munmap-untouched", map, unmap, 0},
    {"mmap-over", touched, map_over, 0},
    {"mremap-grow", touched, grow, 0},
    {"mremap-shrink", touched, shrink, 0},
    {"mprotect", touched, protect, 0},
    {"mprotect-page", touched, protect_page, 0},
    {"madvise-dontneed", touched, discard, 0},
    {"posix_madvise", touched, advise, 0},
    {"sbrk-up", nothing_before, raise_break, 0},
    {"sbrk-down", touched_break, lower_break, 0},
    {"execve-fails", touched, failing_exec, 0},
    {"prctl", nothing_before, ask_prctl, 0},
    {"syscall", nothing_before, ask_syscall, 0},
    {"execve", touched, exec_true, 1},
    {"_exit", touched, end, 43},
    {"_exit-in-child", nothing_before, end, 43},
    {"seccomp-then-_exit", touched, end_in_seccomp, 43},
};

static void on_it(void) { call(); }

static void run_on(unsigned char *stack) {
    CHECK(getcontext(&there) == 0);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = STACK;
    there.uc_link = &back;
    makecontext(&there, on_it, 0);
    CHECK(swapcontext(&back, &there) == 0);
}

int main(void) {
    unsigned char *stack = mmap(NULL, STACK, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        memset(stack, PAINT, STACK);
        /* Each in a process of its own, so that none finds what another left behind. */
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            calls[i].before();
            call = calls[i].call;
            run_on(stack);
            syscall(SYS_exit_group, calls[i].ends ? 1 : 0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (calls[i].ends ? calls[i].ends - 1 : 0))
            FAIL("%s: wait status %x", calls[i].name, status);
        size_t left = 0;
        while (left < STACK && stack[left] == PAINT) left++;
        printf("%s %zu\n", calls[i].name, STACK - left);
    }
    return ok();
}
