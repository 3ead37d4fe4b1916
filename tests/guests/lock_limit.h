/* A locked memory limit that root obeys too; apart from guest.h, for musl has no Linux headers. */
#ifndef LOCK_LIMIT_H
#define LOCK_LIMIT_H

#include "guest.h"
#include <linux/capability.h>

/* Root may lock without limit: not from here on. */
static inline void obey_lock_limit(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    sets[0].effective &= ~(1u << CAP_IPC_LOCK);
    sets[0].permitted &= ~(1u << CAP_IPC_LOCK);
    CHECK(syscall(SYS_capset, &header, sets) == 0);
}

#endif
