/* Records of several fields in a growing table: inserted, sorted by two keys, written as text and read back. */
struct ${p}_record {
${fields}
    char name[24];
};

struct ${p}_table { struct ${p}_record *records; size_t used, room; };

static int ${p}_insert(struct ${p}_table *table, const struct ${p}_record *record)
{
    if (table->used == table->room) {
        size_t room = table->room ? 2 * table->room : 8;
        struct ${p}_record *more = realloc(table->records, room * sizeof *more);
        if (!more)
            return -1;
        table->records = more;
        table->room = room;
    }
    table->records[table->used++] = *record;
    return 0;
}

static int ${p}_compare(const void *left, const void *right)
{
    const struct ${p}_record *a = left, *b = right;
${comparisons}
    return strcmp(a->name, b->name);
}

static size_t ${p}_write(const struct ${p}_record *record, char *text, size_t room)
{
    int length = snprintf(text, room, "%s${format}", record->name, ${values});
    return length < 0 ? 0 : (size_t)length;
}

static u32 ${p}_read(const char *text)
{
    u32 sum = 5381u;
    for (; *text; text++) {
        if (*text >= '0' && *text <= '9')
            sum = sum * 10u + (u32)(*text - '0');
        else if (*text == '|')
            sum = sum * 31u + 7u;
        else
            sum ^= (u32)(unsigned char)*text;
    }
    return sum;
}

static u32 ${p}_run(u32 seed)
{
    struct ${p}_table table = {0};
    char text[512];
    u32 sum = seed;
    for (u32 i = 0; i < ${count}u; i++) {
        struct ${p}_record record;
        memset(&record, 0, sizeof record);
${filled}
        snprintf(record.name, sizeof record.name, "${p}-%u", (unsigned)(next_u32(&seed) % 100000u));
        if (${p}_insert(&table, &record))
            break;
    }
    qsort(table.records, table.used, sizeof *table.records, ${p}_compare);
    for (size_t i = 0; i < table.used; i++) {
        if (i && ${p}_compare(&table.records[i - 1], &table.records[i]) > 0)
            sum += 1000000007u;
        ${p}_write(&table.records[i], text, sizeof text);
        sum = sum * 17u + ${p}_read(text);
    }
    free(table.records);
    return sum;
}
