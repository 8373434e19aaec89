/* Opens and closes an engine, starts its threads, chooses its kernel, and moves keys and values in and out. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native.h"

enum {
    PAUSES_AT_BARRIER = 5000,  /* some 0.2 ms; then the core is offered to others, a partner may wait for it */
    PAUSES_BETWEEN_STEPS = 20000, /* then a thread sleeps */
    SECTIONS_BEFORE = 7, /* of native_open, before the layers' */
    SECTIONS_A_LAYER = 16,
};

/* --- kernels */

/* build.py names the kernels that are compiled, the fastest first, as EACH(name) EACH(name). */
#define EACH(id) extern const struct kernel kernel_##id;
KERNELS
#undef EACH

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of a register (a, b, c, d) of CPUID. Not __builtin_cpu_supports: where zig links, nothing fills in what it reads. */
static inline int has(unsigned leaf, unsigned part, int which, unsigned bits)
{
    unsigned found[4] = {0};
    return __get_cpuid_count(leaf, part, &found[0], &found[1], &found[2], &found[3]) && (found[which] & bits) == bits;
}

/* Whether the system keeps these registers when it switches threads. */
static inline int keeps(unsigned registers)
{
    unsigned low, high;
    if (!has(1, 0, 2, 1u << 27)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}
#define RUNS_avx2 (keeps(0x6) && has(1, 0, 2, 1u << 12 | 1u << 29) && has(7, 0, 1, 1u << 5)) /* FMA, F16C; AVX2 */
#define RUNS_avx_vnni (RUNS_avx2 && has(7, 1, 0, 1u << 4))
#define RUNS_avx512_vnni /* F, DQ, BW, VL; VNNI */ \
    (RUNS_avx2 && keeps(0xe6) && has(7, 0, 1, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) && has(7, 0, 2, 1u << 11))
#define RUNS_avx512_bf16 (RUNS_avx512_vnni && has(7, 1, 0, 1u << 5))
#define RUNS_neon 0
#else
#define RUNS_avx2 0
#define RUNS_avx_vnni 0
#define RUNS_avx512_vnni 0
#define RUNS_avx512_bf16 0
#if defined(__aarch64__)
#include <sys/auxv.h>
#define RUNS_neon ((getauxval(AT_HWCAP) >> 20 & 1) != 0) /* HWCAP_ASIMDDP */
#else
#define RUNS_neon 0
#endif
#endif
#define RUNS_portable 1

const char *native_kernels(void)
{
    static char names[128];
    names[0] = 0;
#define EACH(id) \
    if (RUNS_##id) strcat(strcat(names, kernel_##id.name), " ");
    KERNELS
#undef EACH
    return names;
}

static const struct kernel *find_kernel(const char *wanted)
{
#define EACH(id) \
    if (RUNS_##id && !strcmp(wanted, kernel_##id.name)) return &kernel_##id;
    KERNELS
#undef EACH
    return NULL;
}

/* --- threads */

static inline void pause_thread(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void native_barrier(struct native *n)
{
    if (n->config.threads == 1) return;
    const int passed = atomic_load_explicit(&n->passed.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&n->arrived.value, 1, memory_order_acq_rel) == n->config.threads - 1) {
        atomic_store_explicit(&n->arrived.value, 0, memory_order_relaxed);
        atomic_store_explicit(&n->passed.value, (int)((unsigned)passed + 1), memory_order_release); /* it wraps in days */
        return;
    }
    for (int pauses = 0; atomic_load_explicit(&n->passed.value, memory_order_acquire) == passed; pauses++) {
        pause_thread();
        if (pauses >= PAUSES_AT_BARRIER) sched_yield();
    }
}

static void futex(atomic_int *at, int operation, int value) { syscall(SYS_futex, at, operation, value, NULL, NULL, 0); }

static void begin_step(struct native *n)
{
    atomic_fetch_add(&n->go.value, 1);
    if (atomic_load(&n->asleep.value)) futex(&n->go.value, FUTEX_WAKE_PRIVATE, MAX_THREADS);
}

/* Wait until `go` is another than `seen`; returns it. */
static int wait_for_step(struct native *n, int seen)
{
    int go, pauses = 0;
    while ((go = atomic_load_explicit(&n->go.value, memory_order_acquire)) == seen) {
        pause_thread();
        if (++pauses < PAUSES_BETWEEN_STEPS) continue;
        atomic_fetch_add(&n->asleep.value, 1);
        futex(&n->go.value, FUTEX_WAIT_PRIVATE, seen);
        atomic_fetch_sub(&n->asleep.value, 1);
        pauses = 0;
    }
    return go;
}

struct start {
    struct native *native;
    int thread;
};

static void *run_thread(void *argument)
{
    const struct start start = *(struct start *)argument;
    free(argument);
    for (int seen = 0;;) {
        seen = wait_for_step(start.native, seen);
        if (atomic_load(&start.native->quit.value)) return NULL;
        start.native->kernel->step(start.native, start.thread);
    }
}

static int start_threads(struct native *n)
{
    for (n->started = 1; n->started < n->config.threads; n->started++) {
        struct start *start = malloc(sizeof *start);
        if (!start) return ENOMEM;
        *start = (struct start){n, n->started};
        if (pthread_create(&n->pool[n->started], NULL, run_thread, start)) {
            free(start);
            return EAGAIN;
        }
    }
    return 0;
}

/* --- memory */

/* Zeros in pages of their own, which take memory only where they are written. They end at a page that nobody may touch:
 * who goes beyond dies of it, and spoils nothing. NULL where there is none. */
static void *reserve(struct native *n, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + LINE - 1) / LINE * LINE;
    const size_t pages = (used + page - 1) / page * page;
    char *address = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return NULL;
    n->mappings[n->mapping_count++] = (struct mapping){address, pages + page};
    return mprotect(address + pages, page, PROT_NONE) ? NULL : address + (pages - used);
}

static int reserve_activations(struct native *n, struct activations *a, int rows, int k)
{
    const size_t blocks = (size_t)rows * k / BLOCK;
    a->k = k;
    a->levels = reserve(n, blocks * BLOCK);
    a->scales = reserve(n, blocks * sizeof *a->scales);
    a->sums = reserve(n, blocks * sizeof *a->sums);
    a->offsets = reserve(n, blocks * sizeof *a->offsets);
    return a->levels && a->scales && a->sums && a->offsets;
}

static int padded(int size, int multiple) { return (size + multiple - 1) / multiple * multiple; }

static int reserve_experts(struct native *n)
{
    const struct native_config *c = &n->config;
    const size_t rows = c->max_step_tokens, choices = rows * c->chosen;
    n->chosen = reserve(n, choices * sizeof *n->chosen);
    n->shares = reserve(n, (choices + rows) * sizeof *n->shares);
    n->expert_out = reserve(n, (choices + rows) * c->hidden * sizeof *n->expert_out);
    int whole = n->chosen && n->shares && n->expert_out;
    whole = whole && reserve_activations(n, &n->expert_gated, choices, padded(c->expert_width, SUPER));
    whole = whole && reserve_activations(n, &n->shared_gated, rows, padded(c->shared_width, SUPER));
    for (int i = 0; whole && i < c->threads; i++) {
        struct choices *own = &n->own_choices[i];
        own->starts = reserve(n, (c->experts + 1) * sizeof *own->starts);
        own->rows = reserve(n, choices * sizeof *own->rows), own->places = reserve(n, choices * sizeof *own->places);
        n->own_row[i] = reserve(n, c->hidden * sizeof(float));
        whole = own->starts && own->rows && own->places && n->own_row[i];
        whole = whole && reserve_activations(n, &n->own_routed[i], rows, padded(c->hidden, SUPER));
    }
    return whole;
}

static int reserve_all(struct native *n)
{
    const struct native_config *c = &n->config;
    const int rows = c->max_step_tokens, heads = c->heads * c->head_dim, hidden = padded(c->hidden, SUPER);
    const size_t kv = (size_t)c->layers * c->slots * c->kv_heads * c->capacity * c->head_dim;
    size_t scratch = (size_t)rows * 2 * UNIT;
    if (scratch < (size_t)MAX_QUERIES * c->capacity) scratch = (size_t)MAX_QUERIES * c->capacity;
    n->layers = reserve(n, c->layers * sizeof *n->layers);
    n->keys = reserve(n, kv * sizeof *n->keys), n->values = reserve(n, kv * sizeof *n->values);
    n->hidden = reserve(n, (size_t)rows * c->hidden * sizeof(float));
    n->qkv = reserve(n, (size_t)rows * padded((c->heads + 2 * c->kv_heads) * c->head_dim, UNIT) * sizeof(float));
    n->attended = reserve(n, (size_t)rows * heads * sizeof(float));
    n->groups = reserve(n, rows * sizeof *n->groups);
    n->tickets = reserve(n, c->layers * sizeof *n->tickets);
    int whole = n->layers && n->keys && n->values && n->hidden && n->qkv && n->attended && n->groups && n->tickets;
    whole = whole && reserve_activations(n, &n->normed, rows, hidden);
    whole = whole && reserve_activations(n, &n->wanted_normed, rows, hidden);
    whole = whole && reserve_activations(n, &n->attention, rows, padded(heads, SUPER));
    whole = whole && reserve_activations(n, &n->gated, rows, padded(c->intermediate, SUPER));
    whole = whole && (!c->experts || reserve_experts(n));
    for (int i = 0; whole && i < c->threads; i++) {
        n->scratch[i] = reserve(n, scratch * sizeof(float));
        n->best_values[i] = reserve(n, rows * sizeof(float)), n->best_ids[i] = reserve(n, rows * sizeof(int32_t));
        whole = n->scratch[i] && n->best_values[i] && n->best_ids[i] && reserve_activations(n, &n->own_normed[i], 2, hidden);
    }
    return whole;
}

/* --- opening and closing */

static int fits(const struct native_config *c)
{
    return c->layers > 0 && c->heads > 0 && c->kv_heads > 0 && c->heads % c->kv_heads == 0 && c->head_dim > 0 &&
           c->head_dim % 16 == 0 && c->head_dim <= 256 && c->hidden > 0 && c->hidden % BLOCK == 0 && c->intermediate > 0 &&
           c->intermediate % BLOCK == 0 && c->heads * c->head_dim % BLOCK == 0 && c->vocabulary > 0 && c->slots > 0 &&
           c->capacity > 0 && c->capacity % 32 == 0 && c->max_step_tokens > 0 && c->threads > 0 && c->threads <= MAX_THREADS &&
           (!c->experts || (c->experts > 0 && c->experts <= MAX_EXPERTS && c->chosen > 0 && c->chosen <= c->experts &&
                            c->expert_width > 0 && c->expert_width % BLOCK == 0 && c->shared_width >= 0 &&
                            c->shared_width % BLOCK == 0));
}

static struct matrix matrix_of(const void *panels, const void *bias, int n, int k, int super_bytes)
{
    return (struct matrix){panels, bias, n, padded(n, UNIT), padded(k, SUPER), super_bytes};
}

static void set_sections(struct native *n, const void *const *s)
{
    const struct native_config *c = &n->config;
    const int heads = c->heads * c->head_dim, both = 2 * c->kv_heads * c->head_dim;
    const int form = c->q4 ? SUPER_Q4 : SUPER_INT8;
    n->cosines = s[0], n->sines = s[1], n->norm = s[2], n->away = s[5];
    n->embed = matrix_of(s[3], NULL, c->vocabulary, c->hidden, SUPER_INT8);
    n->head = matrix_of(s[4] ? s[4] : s[3], s[6], c->vocabulary, c->hidden, SUPER_INT8);
    n->vocabulary_stride = n->head.n;
    s += SECTIONS_BEFORE;
    for (int i = 0; i < c->layers; i++, s += SECTIONS_A_LAYER) {
        const int width = s[12] ? c->shared_width : c->intermediate;
        n->layers[i] = (struct layer){
            .input_norm = s[0], .q_norm = s[3], .k_norm = s[4], .post_norm = s[7],
            .qkv = matrix_of(s[1], s[2], heads + both, c->hidden, form),
            .o = matrix_of(s[5], s[6], c->hidden, heads, form),
            .gate_up = matrix_of(s[8], s[9], 2 * width, c->hidden, form),
            .down = matrix_of(s[10], s[11], c->hidden, width, form),
            .router = s[12], .shared_gate = s[13],
            .experts_gate_up = matrix_of(s[14], NULL, 2 * c->experts * c->expert_width, c->hidden, form),
            .experts_down = matrix_of(s[15], NULL, c->experts * c->hidden, c->expert_width, form),
        };
    }
}

struct native *native_open(const struct native_config *config, const void *const *sections, const char *kernel)
{
    const struct kernel *found = find_kernel(kernel);
    if (!found || !fits(config)) {
        errno = EINVAL;
        return NULL;
    }
    struct native *n = aligned_alloc(LINE, (sizeof *n + LINE - 1) / LINE * LINE);
    if (!n) return NULL;
    memset(n, 0, sizeof *n);
    n->config = *config, n->kernel = found;
    n->mappings = calloc(64 + 16 * MAX_THREADS, sizeof *n->mappings);
    int error = n->mappings && reserve_all(n) ? 0 : ENOMEM;
    if (!error) {
        set_sections(n, sections);
        const int per = config->heads / config->kv_heads;
        n->group_tokens = per < ATTENDED_ROWS ? ATTENDED_ROWS / per : 1;
        error = start_threads(n);
    }
    if (error) {
        native_close(n);
        errno = error;
        return NULL;
    }
    return n;
}

void native_close(struct native *n)
{
    atomic_store(&n->quit.value, 1);
    begin_step(n);
    for (int i = 1; i < n->started; i++) pthread_join(n->pool[i], NULL);
    for (int i = 0; i < n->mapping_count; i++) munmap(n->mappings[i].address, n->mappings[i].bytes);
    free(n->mappings);
    free(n);
}

int native_stride(const struct native *n) { return n->vocabulary_stride; }

/* --- a step */

void native_profile(struct native *n, int64_t *phases) { n->phases = phases; }

void native_mark(struct native *n, enum phase phase)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    n->phases[phase] += now - n->marked, n->marked = now;
}

static int within(const struct native *n)
{
    const struct native_config *c = &n->config;
    if (n->tokens < 1 || n->tokens > c->max_step_tokens || n->wanted_count < 0 || n->wanted_count > n->tokens) return 0;
    for (int i = 0; i < n->tokens; i++) {
        if (n->ids[i] < 0 || n->ids[i] >= c->vocabulary || n->slots[i] < 0 || n->slots[i] >= c->slots) return 0;
        if (n->positions[i] < 0 || n->positions[i] >= c->capacity) return 0;
    }
    for (int i = 0; i < n->wanted_count; i++)
        if (n->wanted[i] < 0 || n->wanted[i] >= n->tokens) return 0;
    return 1;
}

static void group_rows(struct native *n)
{
    n->group_count = 0, n->apart = 1;
    for (int first = 0, count; first < n->tokens; first += count) {
        for (count = 1; count < n->group_tokens && first + count < n->tokens; count++) {
            const int row = first + count;
            if (n->slots[row] != n->slots[first] || n->positions[row] != n->positions[first] + count) break;
        }
        if (n->group_count && n->groups[n->group_count - 1].slot == n->slots[first]) n->apart = 0;
        n->groups[n->group_count++] = (struct group){first, count, n->slots[first], n->positions[first]};
    }
}

int native_step(struct native *n, int tokens, const int32_t *ids, const int32_t *slots, const int32_t *positions,
                int wanted_count, const int32_t *wanted, float *logits, int32_t *best, float *peaks)
{
    n->tokens = tokens, n->ids = ids, n->slots = slots, n->positions = positions;
    n->wanted_count = wanted_count, n->wanted = wanted, n->logits = logits;
    if (!within(n)) return -1;
    group_rows(n);
    for (int i = 0; i < n->config.layers; i++) atomic_store_explicit(&n->tickets[i].value, 0, memory_order_relaxed);
    if (n->phases) native_mark(n, BETWEEN);
    begin_step(n);
    n->kernel->step(n, 0);
    for (int r = 0; r < wanted_count; r++) {
        peaks[r] = -INFINITY, best[r] = 0;
        for (int thread = 0; thread < n->config.threads; thread++)
            if (n->best_values[thread][r] > peaks[r]) peaks[r] = n->best_values[thread][r], best[r] = n->best_ids[thread][r];
    }
    return 0;
}

/* --- keys and values */

enum { EXPONENT = 0x7f80 }; /* all ones: infinite, or no number */

void native_export(const struct native *n, int slot, int start, int stop, uint16_t *values)
{
    const int size = n->config.head_dim;
    for (int layer = 0; layer < n->config.layers; layer++)
        for (int part = 0; part < 2; part++)
            for (int head = 0; head < n->config.kv_heads; head++) {
                const uint16_t *from = (part ? n->values : n->keys) + native_head_offset(n, layer, slot, head);
                for (int token = start; token < stop; token++, values += size)
                    for (int i = 0; i < size; i++)
                        values[i] = from[part ? native_value_offset(size, token, i) : native_key_offset(size, token, i)];
            }
}

/* Copy tokens `start` to `stop - 1` of a head, [tokens][head_dim], to where they lie. Whole groups of keys, and pairs of
 * values, are written from their first byte to their last: in less than half the time of one number after the other. */
static void import_keys(uint16_t *restrict to, const uint16_t *restrict from, int size, int start, int stop)
{
    for (int token = start; token < stop;) {
        uint16_t *key = to + native_key_offset(size, token, 0);
        if (token % KEY_TOKENS || stop - token < KEY_TOKENS) {
            for (int i = 0; i < size; i++) key[i / 2 * 2 * KEY_TOKENS + i % 2] = from[i];
            token++, from += size;
            continue;
        }
        for (int i = 0; i < size; i += 2)
            for (int t = 0; t < KEY_TOKENS; t++, key += 2) memcpy(key, from + t * size + i, 2 * sizeof *key);
        token += KEY_TOKENS, from += KEY_TOKENS * size;
    }
}

static void import_values(uint16_t *restrict to, const uint16_t *restrict from, int size, int start, int stop)
{
    for (int token = start; token < stop;) {
        uint16_t *value = to + native_value_offset(size, token, 0);
        if (token % VALUE_TOKENS || stop - token < VALUE_TOKENS) {
            for (int i = 0; i < size; i++) value[VALUE_TOKENS * i] = from[i];
            token++, from += size;
            continue;
        }
        for (int i = 0; i < size; i++) value[2 * i] = from[i], value[2 * i + 1] = from[size + i];
        token += VALUE_TOKENS, from += VALUE_TOKENS * size;
    }
}

int native_import(struct native *n, int slot, int start, int stop, const uint16_t *values)
{
    const int size = n->config.head_dim;
    const size_t head_values = (size_t)(stop - start) * size;
    const size_t all = (size_t)n->config.layers * 2 * n->config.kv_heads * head_values;
    int16_t most = 0;
    for (size_t i = 0; i < all; i++) {
        const int16_t exponent = values[i] & EXPONENT; /* of 16 bits, so that the loop is one of vectors */
        most = exponent > most ? exponent : most;
    }
    if (most == EXPONENT) return -1;
    for (int layer = 0; layer < n->config.layers; layer++)
        for (int part = 0; part < 2; part++)
            for (int head = 0; head < n->config.kv_heads; head++, values += head_values) {
                const size_t at = native_head_offset(n, layer, slot, head);
                if (part) import_values(n->values + at, values, size, start, stop);
                else import_keys(n->keys + at, values, size, start, stop);
            }
    return 0;
}

void native_move(struct native *n, int source, int target, int length)
{
    if (source == target) return;
    const size_t size = n->config.head_dim;
    const size_t keys = padded(length, KEY_TOKENS) * size * sizeof *n->keys;
    const size_t values = padded(length, VALUE_TOKENS) * size * sizeof *n->values;
    for (int layer = 0; layer < n->config.layers; layer++)
        for (int head = 0; head < n->config.kv_heads; head++) {
            const size_t from = native_head_offset(n, layer, source, head), to = native_head_offset(n, layer, target, head);
            memcpy(n->keys + to, n->keys + from, keys);
            memcpy(n->values + to, n->values + from, values);
        }
}
