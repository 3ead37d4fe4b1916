/* Bytes into text and back: hexadecimal, run lengths, replacement of words. */
static size_t ${p}_to_hex(const unsigned char *bytes, size_t length, char *text)
{
    static const char digits[] = "${digits}";
    for (size_t i = 0; i < length; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
    return 2 * length;
}

static int ${p}_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static size_t ${p}_from_hex(const char *text, unsigned char *bytes)
{
    size_t length = 0;
    for (; text[0] && text[1]; text += 2) {
        int high = ${p}_digit(text[0]), low = ${p}_digit(text[1]);
        if (high < 0 || low < 0)
            break;
        bytes[length++] = (unsigned char)(high << 4 | low);
    }
    return length;
}

static size_t ${p}_pack(const unsigned char *from, size_t length, unsigned char *to)
{
    size_t out = 0;
    for (size_t i = 0; i < length;) {
        size_t run = 1;
        while (i + run < length && run < ${longest} && from[i + run] == from[i])
            run++;
        to[out++] = (unsigned char)run;
        to[out++] = from[i];
        i += run;
    }
    return out;
}

static size_t ${p}_unpack(const unsigned char *from, size_t length, unsigned char *to)
{
    size_t out = 0;
    for (size_t i = 0; i + 1 < length; i += 2) {
        memset(to + out, from[i + 1], from[i]);
        out += from[i];
    }
    return out;
}

static size_t ${p}_replace(const char *text, const char *old, const char *new, char *to, size_t room)
{
    size_t out = 0, width = strlen(old), fresh = strlen(new);
    while (*text && out + fresh + 1 < room) {
        if (strncmp(text, old, width) == 0) {
            memcpy(to + out, new, fresh);
            out += fresh;
            text += width;
        } else {
            to[out++] = *text++;
        }
    }
    to[out] = '\0';
    return out;
}

static u32 ${p}_run(u32 seed)
{
    unsigned char bytes[${length}], packed[2 * ${length}], again[${length}];
    char hex[2 * ${length} + 1], text[1024];
    for (size_t i = 0; i < ${length}; i++)
        bytes[i] = (unsigned char)(next_u32(&seed) >> 13 & ${mask}u);
    size_t length = ${p}_pack(bytes, ${length}, packed);
    u32 sum = (u32)length;
    if (${p}_unpack(packed, length, again) != ${length} || memcmp(bytes, again, ${length}))
        sum += 1u << 31;
    ${p}_to_hex(bytes, ${length}, hex);
    if (${p}_from_hex(hex, again) != ${length} || memcmp(bytes, again, ${length}))
        sum += 1u << 30;
    size_t replaced = ${p}_replace(${sentence}, "${old}", "${new}", text, sizeof text);
    for (size_t i = 0; i < replaced; i++)
        sum = sum * 131u + (u32)(unsigned char)text[i];
    return sum;
}
