/*
 * Attention over the KV of a slot, for one key-value head and a group of its tokens.
 *
 * The query heads that share a key-value head, of every token of the group, are rows that read the keys and the values
 * together. Keys lie with their tokens side by side, values with their dimensions side by side, both in pairs: so a
 * vector of either is multiplied by one pair of a row, without sums across lanes.
 */
#ifndef ATTENTION_H
#define ATTENTION_H

enum {
    KEY_VECTORS = 2,   /* vectors of keys that a tile of scores has */
    VALUE_VECTORS = 4, /* vectors of dimensions that a tile of outputs has */
    SCORE_STEP = KEY_VECTORS * LANES, /* tokens; divides the capacity */
    MAX_HEAD_DIM = 256,
};

/* Turn the pairs (i, i + head_dim / 2) of a head by its position, times `factor`. */
INLINE void rotate(const struct native *n, const float *restrict x, int position, float factor, float *restrict y)
{
    const int half = n->config.head_dim / 2;
    const float *restrict c = n->cosines + (size_t)position * half, *restrict s = n->sines + (size_t)position * half;
    for (int i = 0; i < half; i++) {
        y[i] = (x[i] * c[i] - x[half + i] * s[i]) * factor;
        y[half + i] = (x[half + i] * c[i] + x[i] * s[i]) * factor;
    }
}

/* RMS norm of a head, where the family has one (`weights` is not NULL). */
INLINE const float *norm_head(const struct native *n, const float *x, const float *weights, float *y)
{
    if (!weights || n->config.joint_norm) return x;
    const int size = n->config.head_dim;
    vf squares = vf_set(0.0f);
    for (int i = 0; i < size; i += LANES) squares = vf_fma(vf_load(x + i), vf_load(x + i), squares);
    const vf factor = vf_set(1.0f / sqrtf(vf_sum(squares) / size + n->config.epsilon));
    for (int i = 0; i < size; i += LANES) vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), factor), vf_load(weights + i)));
    return y;
}

/* RMS norm of all heads of a row's query or key together, in place. */
static void norm_together(const struct native *n, float *x, int size, const float *weights)
{
    vf squares = vf_set(0.0f);
    for (int i = 0; i < size; i += LANES) squares = vf_fma(vf_load(x + i), vf_load(x + i), squares);
    const vf factor = vf_set(1.0f / sqrtf(vf_sum(squares) / size + n->config.epsilon));
    for (int i = 0; i < size; i += LANES) vf_store(x + i, vf_mul(vf_mul(vf_load(x + i), factor), vf_load(weights + i)));
}

/* Put the key and the value of step row `row` into the KV. */
static void append(const struct native *n, int layer, int row, int head)
{
    const struct native_config *c = &n->config;
    const int size = c->head_dim, position = n->positions[row];
    const float *key = n->qkv + (size_t)row * n->layers[layer].qkv.n + (c->heads + head) * size;
    const float *value = key + c->kv_heads * size;
    const size_t at = native_head_offset(n, layer, n->slots[row], head);
    float normed[MAX_HEAD_DIM], rotated[MAX_HEAD_DIM];
    uint16_t rounded[MAX_HEAD_DIM];
    rotate(n, norm_head(n, key, n->layers[layer].k_norm, normed), position, 1.0f, rotated);
    for (int i = 0; i < size; i += LANES) vf_store_bf16(rounded + i, vf_load(rotated + i));
    uint16_t *keys = n->keys + at + native_key_offset(size, position, 0);
    for (int i = 0; i < size; i += 2) memcpy(keys + i * KEY_TOKENS, rounded + i, 2 * sizeof *keys);
    for (int i = 0; i < size; i += LANES) vf_store_bf16(rounded + i, vf_load(value + i));
    uint16_t *values = n->values + at + native_value_offset(size, position, 0);
    for (int i = 0; i < size; i++) values[i * VALUE_TOKENS] = rounded[i];
}

/* Two bfloat16 values of a row, in every lane. */
INLINE vi row_pair(const uint16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return vi_set(pair);
}

/* scores[r][t] = query r * key t, for `rows` queries and the first `span` tokens, rounded up to SCORE_STEP. */
INLINE void score_tile(const struct native *n, const uint16_t *keys, const uint16_t *values, const uint16_t *queries, int span,
                       float *scores, const int rows)
{
    const int size = n->config.head_dim;
    for (int token = 0; token < span; token += SCORE_STEP) {
        vf sum[KEY_VECTORS][TILE_QUERIES];
        const uint16_t *key[KEY_VECTORS];
        UNROLL for (int v = 0; v < KEY_VECTORS; v++) {
            key[v] = keys + native_key_offset(size, token + v * LANES, 0);
            UNROLL for (int r = 0; r < rows; r++) sum[v][r] = vf_set(0.0f);
        }
        const size_t line = LINE / sizeof *keys, ahead = (size_t)(token + SCORE_STEP) * size;
        for (int i = 0; i < size; i += 2) {
            if (rows <= 3) UNROLL for (int v = 0; v < KEY_VECTORS; v++) { /* few rows wait for memory */
                __builtin_prefetch(values + (size_t)token * size + (i / 2 * KEY_VECTORS + v) * line);
                __builtin_prefetch(keys + ahead + (i / 2 * KEY_VECTORS + v) * line);
            }
            UNROLL for (int r = 0; r < rows; r++) {
                const vi query = row_pair(queries + r * size + i);
                UNROLL for (int v = 0; v < KEY_VECTORS; v++)
                    sum[v][r] = vf_dot_bf16(sum[v][r], vi_load((const uint8_t *)(key[v] + i * KEY_TOKENS)), query);
            }
        }
        UNROLL for (int v = 0; v < KEY_VECTORS; v++) UNROLL for (int r = 0; r < rows; r++)
            vf_store(scores + (size_t)r * n->config.capacity + token + v * LANES, sum[v][r]);
    }
}

/* Turn the scores of the first `count` tokens into bfloat16 weights, in place, with zeros behind; returns 1 / their sum. */
static float soften(float *scores, int count, int span)
{
    const int rest = (span + SCORE_STEP - 1) / SCORE_STEP * SCORE_STEP;
    for (int i = count; i < rest; i++) scores[i] = -INFINITY;
    vf largest = vf_set(-INFINITY), sum = vf_set(0.0f);
    for (int i = 0; i < count; i += LANES) largest = vf_max(largest, vf_load(scores + i));
    const vf peak = vf_set(vf_largest(largest));
    uint16_t *weights = (uint16_t *)scores; /* never ahead of what is still to be read */
    for (int i = 0; i < count; i += LANES) {
        float few[LANES];
        vf e = vf_exp(vf_sub(vf_load(scores + i), peak));
        if (i + LANES > count) {
            vf_store(few, e);
            for (int j = count - i; j < LANES; j++) few[j] = 0.0f;
            e = vf_load(few);
        }
        sum = vf_add(sum, e);
        vf_store_bf16(weights + i, e);
    }
    for (int i = (count + LANES - 1) / LANES * LANES; i < rest; i++) weights[i] = 0;
    return 1.0f / vf_sum(sum);
}

/* out[r][d] = sum of weight r, t * value t, d; for `vectors` vectors of dimensions. */
INLINE void blend_tile(const struct native *n, const uint16_t *values, const float *scores, int span, float *out,
                       const int vectors, const int rows)
{
    const int size = n->config.head_dim;
    vf sum[VALUE_VECTORS][TILE_QUERIES];
    UNROLL for (int v = 0; v < vectors; v++) UNROLL for (int r = 0; r < rows; r++) sum[v][r] = vf_set(0.0f);
    for (int token = 0; token < span; token += VALUE_TOKENS) {
        UNROLL for (int r = 0; r < rows; r++) {
            const vi weight = row_pair((const uint16_t *)(scores + (size_t)r * n->config.capacity) + token);
            UNROLL for (int v = 0; v < vectors; v++) {
                const uint16_t *value = values + (size_t)token * size + v * LANES * VALUE_TOKENS;
                sum[v][r] = vf_dot_bf16(sum[v][r], vi_load((const uint8_t *)value), weight);
            }
        }
    }
    UNROLL for (int v = 0; v < vectors; v++)
        UNROLL for (int r = 0; r < rows; r++) vf_store(out + r * size + v * LANES, sum[v][r]);
}

/* A function for each number of queries and of vectors that tiles have: so the compiler knows them. */
#define EACH_QUERIES(use, ...) \
    switch (rows) { \
    case 1: use(__VA_ARGS__, 1); break; \
    case 2: use(__VA_ARGS__, 2); break; \
    case 3: use(__VA_ARGS__, 3); break; \
    default: use(__VA_ARGS__, TILE_QUERIES); \
    }

static void score(const struct native *n, const uint16_t *keys, const uint16_t *values, const uint16_t *queries, int span,
                  float *scores, int rows)
{
    EACH_QUERIES(score_tile, n, keys, values, queries, span, scores)
}

static void blend(const struct native *n, const uint16_t *values, const float *scores, int span, float *out, int rows)
{
    for (int v = 0, vectors = n->config.head_dim / LANES; v < vectors;) {
        const uint16_t *part = values + v * LANES * VALUE_TOKENS;
        if (vectors - v >= VALUE_VECTORS) {
            EACH_QUERIES(blend_tile, n, part, scores, span, out + v * LANES, VALUE_VECTORS)
            v += VALUE_VECTORS;
        } else {
            EACH_QUERIES(blend_tile, n, part, scores, span, out + v * LANES, 1)
            v++;
        }
    }
}

/* Let a group attend with the query heads of one key-value head, into `attended`; rounded too, where a head has whole
 * blocks. */
static void attend(const struct native *n, int layer, const struct group *g, int head, float *scores)
{
    const struct native_config *c = &n->config;
    const int size = c->head_dim, per = c->heads / c->kv_heads, span = g->position + g->count;
    const size_t at = native_head_offset(n, layer, g->slot, head), capacity = c->capacity;
    const float factor = 1.0f / sqrtf((float)size);
    for (int i = 0; n->apart && i < g->count; i++) append(n, layer, g->first + i, head);
    float x[MAX_HEAD_DIM], normed[MAX_HEAD_DIM];
    for (int first = 0, rows = g->count * per, count; first < rows; first += count) {
        count = rows - first >= TILE_QUERIES ? TILE_QUERIES : rows - first >= 3 ? 3 : rows - first;
        uint16_t queries[TILE_QUERIES * MAX_HEAD_DIM];
        float out[TILE_QUERIES * MAX_HEAD_DIM];
        for (int r = 0; r < count; r++) {
            const int token = (first + r) / per, query = head * per + (first + r) % per;
            const float *q = n->qkv + (size_t)(g->first + token) * n->layers[layer].qkv.n + query * size;
            rotate(n, norm_head(n, q, n->layers[layer].q_norm, normed), g->position + token, factor, x);
            for (int i = 0; i < size; i += LANES) vf_store_bf16(queries + r * size + i, vf_load(x + i));
        }
        score(n, n->keys + at, n->values + at, queries, span, scores, count);
        float inverse[TILE_QUERIES];
        for (int r = 0; r < count; r++)
            inverse[r] = soften(scores + r * capacity, g->position + (first + r) / per + 1, span);
        blend(n, n->values + at, scores, span, out, count);
        for (int r = 0; r < count; r++) {
            const int row = g->first + (first + r) / per, column = (head * per + (first + r) % per) * size;
            float *y = n->attended + (size_t)row * c->heads * size + column;
            for (int i = 0; i < size; i += LANES) vf_store(y + i, vf_mul(vf_load(out + r * size + i), vf_set(inverse[r])));
            for (int i = 0; i < size && size % BLOCK == 0; i += BLOCK)
                round_block(y + i, &n->attention, row, (column + i) / BLOCK);
        }
    }
}

#endif
