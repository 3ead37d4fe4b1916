/* A table-driven checksum and a hash table with open addressing, removal by backward shift. */
static u32 ${p}_table[256];

static void ${p}_make_table(void)
{
    for (u32 i = 0; i < 256; i++) {
        u32 value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1u ? value >> 1 ^ ${polynomial}u : value >> 1;
        ${p}_table[i] = value;
    }
}

static u32 ${p}_checksum(const unsigned char *bytes, size_t length)
{
    u32 sum = ~0u;
    while (length--)
        sum = sum >> 8 ^ ${p}_table[(sum ^ *bytes++) & 255u];
    return ~sum;
}

struct ${p}_slot { u32 key, value, used; };
struct ${p}_map { struct ${p}_slot slots[${slots}]; u32 count; };

static u32 ${p}_place(u32 key)
{
    key ^= key >> ${shift};
    key *= ${multiplier}u;
    return (key ^ key >> 15) % ${slots}u;
}

static u32 *${p}_find(struct ${p}_map *map, u32 key, int insert)
{
    u32 place = ${p}_place(key);
    for (u32 tried = 0; tried < ${slots}u; tried++, place = (place + 1u) % ${slots}u) {
        struct ${p}_slot *slot = &map->slots[place];
        if (slot->used && slot->key == key)
            return &slot->value;
        if (!slot->used) {
            if (!insert)
                return NULL;
            map->count++;
            *slot = (struct ${p}_slot){key, 0, 1};
            return &slot->value;
        }
    }
    return NULL;
}

static int ${p}_remove(struct ${p}_map *map, u32 key)
{
    u32 *value = ${p}_find(map, key, 0);
    if (!value)
        return 0;
    u32 hole = (u32)((struct ${p}_slot *)((char *)value - offsetof(struct ${p}_slot, value)) - map->slots);
    for (u32 at = (hole + 1u) % ${slots}u; map->slots[at].used; at = (at + 1u) % ${slots}u) {
        u32 wanted = ${p}_place(map->slots[at].key);
        if ((at + ${slots}u - wanted) % ${slots}u >= (at + ${slots}u - hole) % ${slots}u) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].used = 0;
    map->count--;
    return 1;
}

static u32 ${p}_run(u32 seed)
{
    static struct ${p}_map map;
    ${p}_make_table();
    for (u32 i = 0; i < ${inserts}u; i++) {
        u32 *value = ${p}_find(&map, next_u32(&seed) % ${keys}u, 1);
        if (value)
            *value += i;
    }
    u32 removed = 0;
    for (u32 key = 0; key < ${keys}u; key += ${stride}u)
        removed += (u32)${p}_remove(&map, key);
    u32 sum = map.count + removed;
    for (u32 key = 0; key < ${keys}u; key++) {
        u32 *value = ${p}_find(&map, key, 0);
        sum = sum * 5u + (value ? *value : 1u);
    }
    return sum ^ ${p}_checksum((const unsigned char *)"${phrase}", sizeof "${phrase}" - 1);
}
