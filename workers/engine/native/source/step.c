/* A decoder's step, by one instruction set. Every thread runs it; barriers part the stages of a layer. */
#include <math.h>
#include <string.h>

#include "native.h"
#include "vector.h"

#include "products.h"

#include "attention.h"

static void gate(struct native *n, int me, const struct matrix *m, const struct activations *normed, int rows,
                 const struct activations *out);

#include "experts.h"

/* Write the embedding of row `row`. */
static void embed(const struct native *n, int row)
{
    const struct matrix *m = &n->embed;
    const int id = n->ids[row], column = id % PANEL;
    const size_t unit_bytes = (size_t)2 * m->super_bytes * (m->k / SUPER);
    const uint8_t *unit = m->panels + id / UNIT * unit_bytes + id / PANEL % 2 * m->super_bytes;
    float *hidden = n->hidden + (size_t)row * n->config.hidden;
    for (int block = 0; block < n->config.hidden / BLOCK; block++) {
        const uint8_t *super = unit + (size_t)(block / 2) * 2 * m->super_bytes;
        float scales[PANEL];
        for (int i = 0; i < PANEL; i += LANES) vf_store(scales + i, vf_half(super + block % 2 * 32 + i * 2));
        for (int i = 0; i < BLOCK; i++) {
            const int level = super[64 + block % 2 * 512 + i / 4 * 64 + column * 4 + i % 4];
            hidden[block * BLOCK + i] = scales[column] * (float)(level - 128);
        }
    }
}

/* RMS norm of a row of `hidden`, plus `away`, rounded; and as it is in `kept`, unless that is NULL. */
static void norm_row(const struct native *n, int row, const float *weights, const float *away, const struct activations *a,
                     int target, float *kept)
{
    const int size = n->config.hidden;
    const float *x = n->hidden + (size_t)row * size;
    vf squares = vf_set(0.0f);
    for (int i = 0; i < size; i += LANES) squares = vf_fma(vf_load(x + i), vf_load(x + i), squares);
    const vf factor = vf_set(1.0f / sqrtf(vf_sum(squares) / size + n->config.epsilon));
    for (int block = 0; block < size / BLOCK; block++) {
        float y[BLOCK];
        for (int i = 0; i < BLOCK; i += LANES) {
            const int at = block * BLOCK + i;
            vf value = vf_mul(vf_mul(vf_load(x + at), factor), vf_load(weights + at));
            if (away) value = vf_add(value, vf_load(away + at));
            vf_store(y + i, value);
        }
        round_block(y, a, target, block);
        if (kept) memcpy(kept + block * BLOCK, y, sizeof y);
    }
}

/* Norm every row: each thread for itself where they are few, for that takes less time than a barrier. */
static const struct activations *norm(struct native *n, int me, const float *weights)
{
    if (n->tokens <= 2) {
        for (int row = 0; row < n->tokens; row++) norm_row(n, row, weights, NULL, &n->own_normed[me], row, NULL);
        return &n->own_normed[me];
    }
    for (int row = me; row < n->tokens; row += n->config.threads) norm_row(n, row, weights, NULL, &n->normed, row, NULL);
    native_barrier(n);
    return &n->normed;
}

static void norm_and_route(struct native *n, int me, const struct layer *l)
{
    for (int row = me; row < n->tokens; row += n->config.threads) {
        norm_row(n, row, l->post_norm, NULL, &n->normed, row, n->own_row[me]);
        route(n, l, row, n->own_row[me]);
    }
    native_barrier(n);
}

static void attention(struct native *n, int me, int layer)
{
    const struct native_config *c = &n->config;
    const struct layer *l = &n->layers[layer];
    if (c->joint_norm && l->q_norm) {
        for (int row = me; row < n->tokens; row += c->threads) {
            float *query = n->qkv + (size_t)row * l->qkv.n, *key = query + c->heads * c->head_dim;
            norm_together(n, query, c->heads * c->head_dim, l->q_norm);
            norm_together(n, key, c->kv_heads * c->head_dim, l->k_norm);
        }
        native_barrier(n);
    }
    if (!n->apart) {
        for (int row = me; row < n->tokens; row += c->threads)
            for (int head = 0; head < c->kv_heads; head++) append(n, layer, row, head);
        native_barrier(n);
    }
    const int parts = n->group_count * c->kv_heads;
    for (int part; (part = atomic_fetch_add_explicit(&n->tickets[layer].value, 1, memory_order_relaxed)) < parts;) {
        const int last = parts - 1 - part; /* the longest pasts are often those of the last rows */
        attend(n, layer, &n->groups[last / c->kv_heads], last % c->kv_heads, n->scratch[me]);
    }
    native_barrier(n);
    if (c->head_dim % BLOCK == 0) return; /* `attend` has rounded */
    const int width = c->heads * c->head_dim;
    for (int row = me; row < n->tokens; row += c->threads)
        for (int block = 0; block < width / BLOCK; block++)
            round_block(n->attended + (size_t)row * width + block * BLOCK, &n->attention, row, block);
    native_barrier(n);
}

/* silu(gate) * up of one's part, rounded into `out`: two units hold 32 columns of each. */
static void gate(struct native *n, int me, const struct matrix *m, const struct activations *normed, int rows,
                 const struct activations *out)
{
    int from, to;
    own_units(n, m->n / UNIT / 2, me, &from, &to);
    float *both = n->scratch[me];
    for (int block = from; block < to; block++) {
        multiply_unit(m, 2 * block, normed, rows, both, 2 * UNIT, 0);
        multiply_unit(m, 2 * block + 1, normed, rows, both + UNIT, 2 * UNIT, 0);
        for (int row = 0; row < rows; row++) {
            float *x = both + (size_t)row * 2 * UNIT, y[BLOCK];
            if (m->bias)
                for (int i = 0; i < 2 * UNIT; i++) x[i] += m->bias[block * 2 * UNIT + i];
            for (int i = 0; i < BLOCK; i += LANES) {
                const float *gates = x + i / PANEL * UNIT + i % PANEL;
                const vf g = vf_load(gates), u = vf_load(gates + PANEL);
                const vf e = vf_exp(vf_sub(vf_set(0.0f), vf_max(g, vf_set(-88.0f))));
                vf_store(y + i, vf_mul(vf_div(g, vf_add(vf_set(1.0f), e)), u));
            }
            round_block(y, out, row, block);
        }
    }
}

/* The logits of the wanted rows, and each thread's best of its part. */
static void project(struct native *n, int me)
{
    const int stride = n->vocabulary_stride;
    for (int r = me; r < n->wanted_count; r += n->config.threads)
        norm_row(n, n->wanted[r], n->norm, n->away, &n->wanted_normed, r, NULL);
    native_barrier(n);
    multiply(n, me, &n->head, &n->wanted_normed, n->wanted_count, n->logits, stride, 0);
    int from, to;
    own_units(n, n->head.n / UNIT, me, &from, &to);
    const int end = to * UNIT < n->config.vocabulary ? to * UNIT : n->config.vocabulary;
    for (int r = 0; r < n->wanted_count; r++) {
        const float *logits = n->logits + (size_t)r * stride;
        float best = -INFINITY;
        int32_t id = from * UNIT;
        for (int i = from * UNIT; i < end; i += LANES) {
            if (i + LANES <= end && !(vf_largest(vf_load(logits + i)) > best)) continue;
            for (int j = i; j < i + LANES && j < end; j++)
                if (logits[j] > best) best = logits[j], id = j;
        }
        n->best_values[me][r] = best, n->best_ids[me][r] = id;
    }
}

#define MARK(phase) (!me && n->phases ? native_mark(n, phase) : (void)0)

static void step(struct native *n, int me)
{
    const struct native_config *c = &n->config;
    for (int row = me; row < n->tokens; row += c->threads) embed(n, row);
    native_barrier(n);
    MARK(EMBED);
    for (int i = 0; i < c->layers; i++) {
        const struct layer *layer = &n->layers[i];
        const struct activations *normed = norm(n, me, layer->input_norm);
        MARK(NORM);
        multiply(n, me, &layer->qkv, normed, n->tokens, n->qkv, layer->qkv.n, 0);
        fetch_first_units(n, &layer->o, me, 1);
        native_barrier(n);
        MARK(QKV);
        attention(n, me, i);
        MARK(ATTENTION);
        multiply(n, me, &layer->o, &n->attention, n->tokens, n->hidden, c->hidden, 1);
        if (layer->gate_up.panels) fetch_first_units(n, &layer->gate_up, me, 2);
        native_barrier(n);
        MARK(OUT);
        if (layer->router) norm_and_route(n, me, layer), normed = &n->normed;
        else normed = norm(n, me, layer->post_norm);
        MARK(NORM);
        const struct activations *gated = layer->router ? &n->shared_gated : &n->gated;
        if (layer->router) gate_experts(n, me, layer);
        if (layer->gate_up.panels) gate(n, me, &layer->gate_up, normed, n->tokens, gated);
        if (layer->down.panels) fetch_first_units(n, &layer->down, me, 1);
        native_barrier(n);
        MARK(GATE_UP);
        if (layer->router) add_experts(n, me, layer);
        else multiply(n, me, &layer->down, gated, n->tokens, n->hidden, c->hidden, 1);
        if (i + 1 < c->layers) fetch_first_units(n, &layer[1].qkv, me, 1);
        native_barrier(n);
        MARK(DOWN);
    }
    project(n, me);
    native_barrier(n);
    MARK(HEAD);
}

#define SYMBOL_(name) kernel_##name
#define SYMBOL(name) SYMBOL_(name)
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
const struct kernel SYMBOL(KERNEL) = {TEXT(KERNEL), step};
