/* Splits a small language into tokens: keywords by table, numbers, names, operators, comments. */
enum ${p}_kind { ${p}_END, ${p}_NAME, ${p}_NUMBER, ${p}_TEXT, ${p}_SIGN, ${p}_KEYWORD };

static const char *const ${p}_keywords[] = {${keywords}};

struct ${p}_token { enum ${p}_kind kind; u32 value; const char *begin; size_t length; };

static int ${p}_is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static int ${p}_keyword(const char *begin, size_t length)
{
    for (size_t i = 0; i < sizeof ${p}_keywords / sizeof *${p}_keywords; i++)
        if (strlen(${p}_keywords[i]) == length && memcmp(${p}_keywords[i], begin, length) == 0)
            return (int)i;
    return -1;
}

static const char *${p}_next(const char *at, struct ${p}_token *token)
{
    while (*at == ' ' || *at == '\n' || *at == '\t')
        at++;
    token->begin = at;
    token->value = 0;
    switch (*at) {
    case '\0':
        token->kind = ${p}_END;
        break;
    case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        token->kind = ${p}_NUMBER;
        for (; *at >= '0' && *at <= '9'; at++)
            token->value = token->value * 10u + (u32)(*at - '0');
        break;
    case '"':
        token->kind = ${p}_TEXT;
        for (at++; *at && *at != '"'; at++)
            token->value = token->value * ${factor}u + (u32)*at;
        at += *at == '"';
        break;
    case '/':
        if (at[1] == '/') {
            while (*at && *at != '\n')
                at++;
            return ${p}_next(at, token);
        }
        /* fall through */
    case '+': case '-': case '*': case '(': case ')': case ';': case '=': case '<': case '>':
        token->kind = ${p}_SIGN;
        token->value = (u32)*at++;
        break;
    default:
        if (!${p}_is_name(*at)) {
            token->kind = ${p}_SIGN;
            token->value = 1u + (u32)(unsigned char)*at++;
            break;
        }
        token->kind = ${p}_NAME;
        for (; ${p}_is_name(*at) || (*at >= '0' && *at <= '9'); at++)
            token->value = (token->value ^ (u32)(unsigned char)*at) * 16777619u;
    }
    token->length = (size_t)(at - token->begin);
    if (token->kind == ${p}_NAME) {
        int keyword = ${p}_keyword(token->begin, token->length);
        if (keyword >= 0) {
            token->kind = ${p}_KEYWORD;
            token->value = (u32)keyword;
        }
    }
    return at;
}

static u32 ${p}_run(u32 seed)
{
    static const char source[] = ${source};
    u32 counts[6] = {0}, sum = seed;
    struct ${p}_token token;
    const char *at = source;
    do {
        at = ${p}_next(at, &token);
        counts[token.kind]++;
        sum = sum * 31u + token.value + (u32)token.length;
    } while (token.kind != ${p}_END);
    for (int i = 0; i < 6; i++)
        sum ^= counts[i] << (4 * i);
    return sum;
}
