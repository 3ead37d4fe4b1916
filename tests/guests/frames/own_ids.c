/* A program that gives up root in a child, as a daemon with separated privileges does, and what then attacks its parent: the
 * child itself, and code in the child's library threads, whose ids whoever controls the child has. Neither may signal a thread
 * of the parent or write to its memory. Regression: library threads of all programs that could become another user had the same ids.
 *
 * With an argument: a parent that may not change its ids, but has capabilities, and a process of its user without any. */
#include "frames.h"
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>

enum { USER = 65533, GROUP = 65532, MOST = 16 };

static volatile char secret[16] = "the parent's";

/* The ids of threads of `process`, with their users and groups. */
struct threads {
    pid_t ids[MOST];
    unsigned users[MOST], groups[MOST];
    int count;
};

static struct threads threads_of(pid_t process) {
    struct threads found = {.count = 0};
    char path[300], line[256];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    struct dirent *entry;
    CHECK(tasks);
    while ((entry = readdir(tasks))) {
        if (entry->d_name[0] == '.' || found.count == MOST) continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/status", process, entry->d_name);
        FILE *status = fopen(path, "r");
        CHECK(status);
        while (fgets(line, sizeof line, status)) {
            (void)!sscanf(line, "Uid: %u", &found.users[found.count]);
            (void)!sscanf(line, "Gid: %u", &found.groups[found.count]);
        }
        fclose(status);
        found.ids[found.count++] = atoi(entry->d_name);
    }
    closedir(tasks);
    return found;
}

static int has_engine(const struct threads *threads) { return threads->count > 1; }

/* Nothing that names a thread of `victim` is permitted to the caller. */
static void attack(const char *who, pid_t victim, const struct threads *threads, int signals_are_permitted) {
    char written[] = "an attacker's";
    struct iovec from = {written, sizeof written}, to = {(void *)(uintptr_t)secret, sizeof written};
    for (int i = 0; i < threads->count; i++) {
        pid_t thread = threads->ids[i];
        if (process_vm_writev(thread, &from, 1, &to, 1, 0) != -1) FAIL("%s wrote by thread %d of %d", who, i, threads->count);
        if (errno == ESRCH) continue; /* a thread that was about to end */
        CHECK(errno == EPERM);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task/%d/mem", victim, thread);
        if (open(path, O_RDWR) != -1) FAIL("%s opened the memory by thread %d", who, i);
        if (signals_are_permitted) continue;
        if (syscall(SYS_tgkill, victim, thread, 0) != -1) FAIL("%s may signal thread %d of %d", who, i, threads->count);
        CHECK(errno == EPERM);
        if (kill(thread, 0) != -1) FAIL("%s may signal the process by thread %d", who, i);
    }
}

static void become(unsigned user, unsigned group) {
    CHECK(setgroups(0, NULL) == 0 && setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0);
}

/* In a process of its own: the attack of somebody with these ids. */
static void attack_as(const char *who, unsigned user, unsigned group, pid_t victim, const struct threads *threads) {
    pid_t pid = fork();
    if (pid == 0) {
        become(user, group);
        attack(who, victim, threads, 0);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
}

static void gives_up_root(pid_t parent, const struct threads *parents) {
    unsigned char *p = map_anon(16 * PAGE);
    write_tags(p, 16, 1);
    struct threads own = threads_of(getpid());
    if (has_engine(parents) && !has_engine(&own)) FAIL("the child has %d threads", own.count);
    /* What its library threads may do, whoever controls the child can have them do later. */
    for (int i = 0; i < own.count; i++)
        if (own.ids[i] != getpid()) attack_as("a library thread of the child", own.users[i], own.groups[i], parent, parents);
    /* Ids that are nobody's, of which somebody may run programs. */
    attack_as("nobody", 65534, 65534, parent, parents);
    attack_as("-2", (unsigned)-2, (unsigned)-2, parent, parents);
    become(USER, GROUP);
    attack("the child", parent, parents, 0);
    check_tags(p, 16, 1);
}

/* Keeps the capabilities of `kept` alone. */
static void keep_only(uint64_t kept) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    for (int i = 0; i < 2; i++) data[i].effective = data[i].permitted = (unsigned)(kept >> 32 * i);
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

static int with_capabilities(void) {
    if (geteuid() != 0) return ok();
    keep_only((uint64_t)1 << CAP_NET_RAW);
    int gate[2];
    CHECK(pipe(gate) == 0);
    pid_t victim = fork(); /* its engine begins with these capabilities */
    if (victim == 0) {
        unsigned char *p = map_anon(16 * PAGE);
        write_tags(p, 16, 2);
        CHECK(write(gate[1], "", 1) == 1);
        pause();
    }
    char byte;
    CHECK(read(gate[0], &byte, 1) == 1);
    struct threads threads = threads_of(victim);
    pid_t attacker = fork();
    if (attacker == 0) {
        keep_only(0);
        attack("root without capabilities", victim, &threads, 1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(attacker, &status, 0) == attacker && kill(victim, SIGKILL) == 0 && waitpid(victim, NULL, 0) == victim);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return ok();
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) return with_capabilities();
    unsigned char *p = map_anon(16 * PAGE);
    write_tags(p, 16, 3);
    CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
    if (geteuid() != 0) return ok();
    pid_t parent = getpid();
    struct threads parents = threads_of(parent);
    if (policy.known && !has_engine(&parents)) FAIL("%d threads: where is the one that places frames?", parents.count);
    pid_t child = fork();
    if (child == 0) {
        gives_up_root(parent, &parents);
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    CHECK(strcmp((const char *)(uintptr_t)secret, "the parent's") == 0);
    return ok();
}
