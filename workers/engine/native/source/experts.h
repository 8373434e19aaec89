/*
 * A layer's mixture of experts. The router scores every expert for a row, in float32; of equal scores the lower number is
 * chosen. Rows are grouped by expert, so that a matrix is read once for all rows that chose it, and one that no row chose is
 * not read. A row's experts are added in the order of their scores: no sum depends on its neighbours.
 */
#ifndef EXPERTS_H
#define EXPERTS_H

INLINE float dot(const float *restrict x, const float *restrict y, int size)
{
    vf even = vf_set(0.0f), odd = vf_set(0.0f);
    for (int i = 0; i < size; i += 2 * LANES) {
        even = vf_fma(vf_load(x + i), vf_load(y + i), even);
        odd = vf_fma(vf_load(x + i + LANES), vf_load(y + i + LANES), odd);
    }
    return vf_sum(vf_add(even, odd));
}

INLINE float exp_of(float x)
{
    float y[LANES];
    vf_store(y, vf_exp(vf_set(x)));
    return y[0];
}

/* Choose the experts of row `row`, whose normed values are `x`, and their shares of its sum. */
static void route(const struct native *n, const struct layer *l, int row, const float *x)
{
    const struct native_config *c = &n->config;
    int32_t *chosen = n->chosen + (size_t)row * c->chosen;
    float *shares = n->shares + (size_t)row * (c->chosen + 1), scores[MAX_EXPERTS], sum = 0.0f;
    uint8_t taken[MAX_EXPERTS] = {0};
    for (int e = 0; e < c->experts; e++) scores[e] = dot(l->router + (size_t)e * c->hidden, x, c->hidden);
    for (int rank = 0; rank < c->chosen; rank++) {
        int best = 0;
        while (taken[best]) best++;
        for (int e = best + 1; e < c->experts; e++)
            if (!taken[e] && scores[e] > scores[best]) best = e;
        taken[best] = 1, chosen[rank] = best;
    }
    const float highest = scores[chosen[0]];
    for (int rank = 0; rank < c->chosen; rank++) shares[rank] = exp_of(scores[chosen[rank]] - highest);
    if (c->normalized)
        for (int rank = 0; rank < c->chosen; rank++) sum += shares[rank];
    else
        for (int e = 0; e < c->experts; e++) sum += exp_of(scores[e] - highest);
    for (int rank = 0; rank < c->chosen; rank++) shares[rank] /= sum;
    if (!l->shared_gate) return;
    const float score = dot(l->shared_gate, x, c->hidden);
    shares[c->chosen] = 1.0f / (1.0f + exp_of(score > -88.0f ? -score : 88.0f));
}

/* Order the choices of all rows by expert, in `own`: those of expert e are at starts[e] to starts[e + 1] - 1. */
static void group_by_expert(const struct native *n, struct choices *own)
{
    const int count = n->tokens * n->config.chosen;
    int32_t next[MAX_EXPERTS] = {0};
    for (int i = 0; i < count; i++) next[n->chosen[i]]++;
    own->starts[0] = 0;
    for (int e = 0; e < n->config.experts; e++) {
        own->starts[e + 1] = own->starts[e] + next[e];
        next[e] = own->starts[e];
    }
    for (int i = 0; i < count; i++) {
        const int at = next[n->chosen[i]]++;
        own->rows[at] = i / n->config.chosen, own->places[i] = at;
    }
}

/* The matrix of one expert: `outputs` columns of those of all. */
INLINE struct matrix of_expert(const struct matrix *all, int expert, int outputs)
{
    const size_t unit_bytes = (size_t)2 * all->super_bytes * (all->k / SUPER);
    struct matrix m = *all;
    m.panels += (size_t)expert * (outputs / UNIT) * unit_bytes, m.outputs = m.n = outputs;
    return m;
}

INLINE struct activations rows_from(const struct activations *a, size_t row)
{
    const size_t blocks = row * (a->k / BLOCK);
    return (struct activations){a->levels + blocks * BLOCK, a->scales + blocks, a->sums + blocks, a->offsets + blocks, a->k};
}

/* Copy the rounded rows of an expert side by side. */
static const struct activations *gather(const struct native *n, int me, const int32_t *rows, int count)
{
    if (count == n->tokens) return &n->normed;
    const struct activations *from = &n->normed, *to = &n->own_routed[me];
    const size_t blocks = from->k / BLOCK;
    for (int r = 0; r < count; r++) {
        const size_t source = rows[r] * blocks, target = r * blocks;
        memcpy(to->levels + target * BLOCK, from->levels + source * BLOCK, blocks * BLOCK);
        memcpy(to->scales + target, from->scales + source, blocks * sizeof *to->scales);
        memcpy(to->sums + target, from->sums + source, blocks * sizeof *to->sums);
        memcpy(to->offsets + target, from->offsets + source, blocks * sizeof *to->offsets);
    }
    return to;
}

/* silu(gate) * up of every chosen expert, of one's part. */
static void gate_experts(struct native *n, int me, const struct layer *l)
{
    const struct native_config *c = &n->config;
    struct choices *own = &n->own_choices[me];
    group_by_expert(n, own);
    for (int e = 0; e < c->experts; e++) {
        const int first = own->starts[e], count = own->starts[e + 1] - first;
        if (!count) continue;
        const struct matrix m = of_expert(&l->experts_gate_up, e, 2 * c->expert_width);
        const struct activations out = rows_from(&n->expert_gated, first);
        gate(n, me, &m, gather(n, me, own->rows + first, count), count, &out);
    }
}

/* Add every row's experts, and the one that all rows pass, to its hidden values, of one's part. */
static void add_experts(struct native *n, int me, const struct layer *l)
{
    const struct native_config *c = &n->config;
    const struct choices *own = &n->own_choices[me];
    for (int e = 0; e < c->experts; e++) {
        const int first = own->starts[e], count = own->starts[e + 1] - first;
        if (!count) continue;
        const struct matrix m = of_expert(&l->experts_down, e, c->hidden);
        const struct activations a = rows_from(&n->expert_gated, first);
        multiply(n, me, &m, &a, count, n->expert_out + (size_t)first * c->hidden, c->hidden, 0);
    }
    float *shared_out = n->expert_out + (size_t)n->tokens * c->chosen * c->hidden;
    if (l->shared_gate) multiply(n, me, &l->down, &n->shared_gated, n->tokens, shared_out, c->hidden, 0);
    int from, to;
    own_units(n, c->hidden / UNIT, me, &from, &to);
    for (int row = 0; row < n->tokens; row++) {
        const float *shares = n->shares + (size_t)row * (c->chosen + 1);
        const int32_t *places = own->places + (size_t)row * c->chosen;
        for (int i = from * UNIT; i < to * UNIT; i += LANES) {
            vf sum = vf_set(0.0f);
            for (int rank = 0; rank < c->chosen; rank++)
                sum = vf_fma(vf_load(n->expert_out + (size_t)places[rank] * c->hidden + i), vf_set(shares[rank]), sum);
            if (l->shared_gate)
                sum = vf_fma(vf_load(shared_out + (size_t)row * c->hidden + i), vf_set(shares[c->chosen]), sum);
            float *hidden = n->hidden + (size_t)row * c->hidden + i;
            vf_store(hidden, vf_add(vf_load(hidden), sum));
        }
    }
}

#endif
