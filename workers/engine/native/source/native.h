/*
 * The native CPU engine: one step of a Llama-family decoder, for any mix of decode rows and prompt chunks.
 *
 * A step's rows are (token id, slot, position) triples. Each is embedded, passes every layer, and where its logits are
 * wanted is projected to the vocabulary. Weights are 8 or 4 bits in blocks of 32 inputs, activations are rounded to 8 bits
 * in the same blocks, sums are float32, keys and values bfloat16. A row's logits do not depend on its neighbours, to the
 * bit: no sum's order depends on what else is in the step.
 *
 * engine.c is compiled once; step.c once for each kernel (an instruction set), under the name that KERNEL gives it.
 */
#ifndef NATIVE_H
#define NATIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BLOCK = 32,         /* inputs that share a scale */
    PANEL = 16,         /* output columns side by side */
    UNIT = 2 * PANEL,   /* columns that one thread computes at a time */
    SUPER = 2 * BLOCK,  /* inputs of a superblock */
    SUPER_INT8 = 1088,  /* its bytes for one panel: scales [2][16] of float16, levels [2][8][16][4] */
    SUPER_Q4 = 640,     /* scales and minima [2][16] each, levels [2][4][16][4], two to a byte */
    KEY_TOKENS = 16,    /* keys lie [capacity / 16][head_dim / 2][16 tokens][2] */
    VALUE_TOKENS = 2,   /* values lie [capacity / 2][head_dim][2 tokens] */
    MAX_THREADS = 64,
    MAX_EXPERTS = 1024,
    MAX_QUERIES = 6,    /* most rows of a tile of scores */
    ATTENDED_ROWS = 12, /* query rows that read a head's keys together, where a head has no more */
    LINE = 64,
};

/* What a step is made of, for profiles: the time before it, then its phases. */
enum phase { BETWEEN, EMBED, NORM, QKV, ATTENTION, OUT, GATE_UP, DOWN, HEAD, PHASES };

/* `[n, k]`: n is `outputs` padded to a multiple of UNIT, k the inputs padded to a multiple of SUPER. */
struct matrix {
    const uint8_t *panels;
    const float *bias; /* [outputs], or NULL */
    int outputs, n, k, super_bytes;
};

struct layer {
    const float *input_norm, *post_norm, *q_norm, *k_norm; /* the last two may be NULL */
    struct matrix qkv, o, gate_up, down;
    /* With experts, else NULL: then `gate_up` and `down` are of the expert that every row passes, if there is one. */
    const float *router, *shared_gate; /* [experts][hidden]; [hidden] */
    struct matrix experts_gate_up, experts_down; /* of all experts, one after the other */
};

/* Rows rounded to 8 bits: levels [rows][k], and of each block [rows][k / 32] its scale, the sum of its values, and what a
 * kernel's sum of products begins with. A value is level * scale. (Levels of rows side by side, which spare a tile its
 * row pointers, were tried: slower by a tenth on Zen 5.) */
struct activations {
    int8_t *levels;
    float *scales, *sums;
    int32_t *offsets;
    int k;
};

/* The rows' choices in the order of their experts: where each expert's begin, each one's row, and where each one is. */
struct choices {
    int32_t *starts, *rows, *places;
};

/* Consecutive tokens of one slot, which attend together. */
struct group {
    int first, count, slot, position;
};

struct native_config {
    int32_t layers, heads, kv_heads, head_dim, hidden, intermediate, vocabulary;
    int32_t slots, capacity, max_step_tokens, threads, q4;
    int32_t joint_norm; /* the norms of query and key are over all heads of a row */
    int32_t experts, chosen, expert_width, shared_width, normalized; /* 0 where there are none */
    float epsilon;
};

struct native;

struct kernel {
    const char *name;
    void (*step)(struct native *, int thread);
};

struct counter {
    _Alignas(LINE) atomic_int value;
};

struct native {
    struct native_config config;
    const struct kernel *kernel;
    struct layer *layers;
    struct matrix embed, head;
    const float *norm, *away, *cosines, *sines; /* `away` [hidden] is added before the head, or NULL */
    uint16_t *keys, *values;                    /* [layers][slots][kv heads][capacity][head_dim], ordered as above */
    int vocabulary_stride;                      /* of a row of logits: the vocabulary, padded to a multiple of UNIT */
    int group_tokens;

    /* Room for the largest step. */
    float *hidden, *qkv, *attended;
    struct activations normed, attention, gated, wanted_normed, own_normed[MAX_THREADS], expert_gated, shared_gated, own_routed[MAX_THREADS];
    float *expert_out, *shares, *own_row[MAX_THREADS]; /* of each choice [hidden]; [rows][chosen + 1]; [hidden] */
    int32_t *chosen;                                   /* [rows][chosen] */
    struct choices own_choices[MAX_THREADS];
    float *scratch[MAX_THREADS]; /* attention's scores; a unit's gates */
    struct group *groups;
    struct counter *tickets; /* one a layer: the next part of its attention */

    /* The step that is computed now. */
    int tokens, wanted_count, group_count;
    int apart; /* no slot has two groups: each appends its own keys and values, which are then in its core's cache */
    const int32_t *ids, *slots, *positions, *wanted;
    float *logits;
    float *best_values[MAX_THREADS];
    int32_t *best_ids[MAX_THREADS];

    int64_t *phases, marked; /* the caller's nanoseconds in each phase, or NULL; when the last one ended */

    /* The threads. The caller's is number 0. */
    pthread_t pool[MAX_THREADS];
    struct counter arrived, passed, go, asleep, quit;
    struct mapping {
        void *address;
        size_t bytes;
    } *mappings;
    int mapping_count, started;
};

/* The names of the kernels that this library has and this machine can run, the fastest first, between spaces. */
const char *native_kernels(void);

/* `sections` in the order that library.py gives; they must outlive the engine. NULL: errno is EINVAL for a kernel that
 * cannot run here or sizes that do not fit, ENOMEM or EAGAIN. */
struct native *native_open(const struct native_config *, const void *const *sections, const char *kernel);
void native_close(struct native *);
int native_stride(const struct native *); /* floats from one row of logits to the next */

/* Add each row's token to its slot at its position; rows of one slot ascend. Of the rows that `wanted` lists, `logits`
 * gets [wanted_count][stride], `best` the likeliest id (of equal ones the smallest) and `peaks` its logit. Nothing is
 * done, and -1 returned, where a number is out of bounds. */
int native_step(struct native *, int tokens, const int32_t *ids, const int32_t *slots, const int32_t *positions,
                int wanted_count, const int32_t *wanted, float *logits, int32_t *best, float *peaks);

/* Copy tokens `start` to `stop - 1` of a slot out of the KV or into it: bfloat16 [layers][2][kv heads][tokens][head_dim].
 * Nothing is written, and -1 returned, where a number is not finite. */
void native_export(const struct native *, int slot, int start, int stop, uint16_t *values);
int native_import(struct native *, int slot, int start, int stop, const uint16_t *values);

/* Copy the first `length` tokens of one slot over another's. */
void native_move(struct native *, int source, int target, int length);

/* Have each step add the nanoseconds of its phases to `phases` [PHASES]; NULL: none does. */
void native_profile(struct native *, int64_t *phases);

/* Add the time since the last mark to a phase. For kernels, where `phases` is not NULL. */
void native_mark(struct native *, enum phase);

/* Wait until every thread has come here. For kernels. */
void native_barrier(struct native *);

/* Where the KV of a head of a slot begins. */
static inline size_t native_head_offset(const struct native *n, int layer, int slot, int head)
{
    const struct native_config *c = &n->config;
    return (((size_t)layer * c->slots + slot) * c->kv_heads + head) * (size_t)c->capacity * c->head_dim;
}

static inline size_t native_key_offset(int head_dim, int token, int dim)
{
    return ((size_t)(token / KEY_TOKENS) * head_dim / 2 + dim / 2) * (2 * KEY_TOKENS) + token % KEY_TOKENS * 2 + dim % 2;
}

static inline size_t native_value_offset(int head_dim, int token, int dim)
{
    return (size_t)(token / VALUE_TOKENS) * VALUE_TOKENS * head_dim + dim * VALUE_TOKENS + token % VALUE_TOKENS;
}

#endif
