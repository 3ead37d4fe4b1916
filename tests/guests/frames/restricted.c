/* Restrictions that a thread puts on itself hold for that thread alone. No thread of the library's keeps what the program has
 * given up: privileges that exec could give, files (Landlock), a root and mounts (unshare). Its memory works as before.
 * Regression: the program could have the thread that places frames open such files, or execute set-user-ID programs. */
#include "frames.h"
#include "../landlock.h"
#include <dirent.h>
#include <sched.h>

/* The number behind `word` in /proc/self/task/THREAD/status; `if_gone`: the thread has ended. */
static unsigned long long status_of(const char *thread, const char *word, int base, unsigned long long if_gone) {
    char path[300], line[1024];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *file = fopen(path, "r");
    unsigned long long value = if_gone;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0) value = strtoull(line + strlen(word), NULL, base);
    if (file) fclose(file);
    return value;
}

/* Number of other threads; checks that none of them could get privileges by an exec. */
static int library_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int threads = 0;
    CHECK(tasks);
    while ((entry = readdir(tasks))) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
        threads++;
        if (status_of(entry->d_name, "NoNewPrivs:", 10, 1) != 1) FAIL("thread %s may gain privileges", entry->d_name);
        if (geteuid() == 0 && status_of(entry->d_name, "CapBnd:", 16, 0)) FAIL("thread %s may gain capabilities", entry->d_name);
    }
    closedir(tasks);
    return threads;
}

/* The kernel still lists a thread for a moment after its end. */
static int library_threads_remain(void) {
    for (int i = 0; i < 2000 && library_threads() > 0; i++) usleep(1000);
    return library_threads() > 0;
}

/* Whether the memory works on after `restrict_self`, and no thread of the library's is left if that succeeded. */
static void in_child(int (*restrict_self)(void)) {
    pid_t child = fork();
    if (child == 0) {
        unsigned char *p = map_anon(64 * PAGE);
        write_tags(p, 32, 4);
        CHECK(!policy.known || library_threads() > 0);
        if (restrict_self()) CHECK(!library_threads_remain());
        write_tags(p + 32 * PAGE, 32, 36);
        check_tags(p, 32, 4);
        check_tags(p + 32 * PAGE, 32, 36);
        _exit(7);
    }
    CHECK(wait_20_s_for(child) == 7);
}

static int files(void) {
    static const char *const allowed[] = {"/proc", NULL};
    return restrict_files_to(allowed);
}

static int mounts(void) { return unshare(CLONE_NEWNS) == 0; }

static int mounts_by_number(void) { return syscall(SYS_unshare, CLONE_NEWNS) == 0; }

static int root(void) { return unshare(CLONE_FS) == 0; }

static int nothing_that_exists(void) {
    CHECK_ERRNO(syscall(RESTRICT_SELF, -1, 0), -1, errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM ? errno : EBADF);
    CHECK(!policy.known || library_threads() > 0);
    return 0;
}

int main(void) {
    unsigned char *p = map_anon(64 * PAGE);
    write_tags(p, 64, 3);
    CHECK_PLACED(p, 64);
    in_child(files);
    in_child(mounts);
    in_child(mounts_by_number);
    in_child(root);
    in_child(nothing_that_exists);
    check_tags(p, 64, 3);
    CHECK(!policy.known || library_threads() > 0);
    return ok();
}
