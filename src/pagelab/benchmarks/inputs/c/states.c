/* A protocol as a state machine: what to do is a table of functions, where to go a table of states. */
enum ${p}_state { ${states} };
enum ${p}_event { ${events} };

struct ${p}_session { enum ${p}_state state; u32 counters[8]; u32 errors; };

typedef void ${p}_action(struct ${p}_session *, u32);

${actions}

static ${p}_action *const ${p}_actions[${state_count}][${event_count}] = {
${action_table}
};

static const unsigned char ${p}_following[${state_count}][${event_count}] = {
${state_table}
};

static const char *${p}_name(enum ${p}_state state)
{
    switch (state) {
${names}
    }
    return "?";
}

static u32 ${p}_run(u32 seed)
{
    struct ${p}_session session = {.errors = 0};
    u32 sum = seed;
    for (u32 i = 0; i < ${rounds}u; i++) {
        u32 event = next_u32(&seed) % ${event_count}u;
        ${p}_action *action = ${p}_actions[session.state][event];
        if (action)
            action(&session, i);
        else
            session.errors++;
        session.state = (enum ${p}_state)${p}_following[session.state][event];
        sum = sum * 3u + (u32)${p}_name(session.state)[0] + (u32)session.state;
    }
    for (int i = 0; i < 8; i++)
        sum = sum * 7u ^ session.counters[i];
    return sum + session.errors;
}
