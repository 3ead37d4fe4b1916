/* What the guests about forks and hints share. Where the library is not there, the last argument is "natively". */
#ifndef FORKS_H
#define FORKS_H
#include "../api/api.h"

/* The answer to every hint. */
static int answer;

__attribute__((unused)) static void read_arguments(int argc, char **argv) {
    answer = strcmp(argv[argc - 1], "natively") == 0 ? -ENOSYS : 0;
}

#endif
