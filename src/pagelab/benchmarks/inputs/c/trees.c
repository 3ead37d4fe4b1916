/* A treap: a search tree by key, a heap by priority; recursive in everything. */
struct ${p}_node { u32 key, priority, count, total; struct ${p}_node *left, *right; };

static struct ${p}_node ${p}_pool[${nodes}];
static u32 ${p}_used;

static struct ${p}_node *${p}_new(u32 key, u32 priority)
{
    if (${p}_used == ${nodes}u)
        return NULL;
    struct ${p}_node *node = &${p}_pool[${p}_used++];
    *node = (struct ${p}_node){key, priority, 1, key, NULL, NULL};
    return node;
}

static void ${p}_update(struct ${p}_node *node)
{
    node->count = 1u + (node->left ? node->left->count : 0u) + (node->right ? node->right->count : 0u);
    node->total = node->key + (node->left ? node->left->total : 0u) + (node->right ? node->right->total : 0u);
}

static struct ${p}_node *${p}_turn(struct ${p}_node *node, int to_right)
{
    struct ${p}_node *up = to_right ? node->left : node->right;
    if (to_right) {
        node->left = up->right;
        up->right = node;
    } else {
        node->right = up->left;
        up->left = node;
    }
    ${p}_update(node);
    ${p}_update(up);
    return up;
}

static struct ${p}_node *${p}_insert(struct ${p}_node *node, u32 key, u32 priority)
{
    if (!node)
        return ${p}_new(key, priority);
    if (key == node->key)
        return node;
    if (key < node->key) {
        node->left = ${p}_insert(node->left, key, priority);
        if (node->left && node->left->priority > node->priority)
            node = ${p}_turn(node, 1);
    } else {
        node->right = ${p}_insert(node->right, key, priority);
        if (node->right && node->right->priority > node->priority)
            node = ${p}_turn(node, 0);
    }
    ${p}_update(node);
    return node;
}

static u32 ${p}_total_below(const struct ${p}_node *node, u32 key)
{
    if (!node)
        return 0;
    if (key <= node->key)
        return ${p}_total_below(node->left, key);
    return node->key + (node->left ? node->left->total : 0u) + ${p}_total_below(node->right, key);
}

static u32 ${p}_depth(const struct ${p}_node *node)
{
    if (!node)
        return 0;
    u32 left = ${p}_depth(node->left), right = ${p}_depth(node->right);
    return 1u + (left > right ? left : right);
}

static u32 ${p}_run(u32 seed)
{
    struct ${p}_node *root = NULL;
    for (u32 i = 0; i < ${nodes}u; i++) {
        u32 key = next_u32(&seed) % ${keys}u;
        root = ${p}_insert(root, key, next_u32(&seed));
    }
    u32 sum = ${p}_depth(root) + (root ? root->count : 0u);
    for (u32 key = 0; key < ${keys}u; key += ${stride}u)
        sum = sum * 9u + ${p}_total_below(root, key);
    return sum;
}
