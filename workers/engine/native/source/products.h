/*
 * Products of 8-bit rows with packed matrices, and how rows are rounded to 8 bits.
 *
 * A matrix's bytes lie in the order in which they are read. A tile multiplies TILE_PANELS panels by up to TILE_ROWS
 * rows; its sums stay in registers over all inputs. While the tiles of one unit are computed, the next unit's lines are
 * fetched into the second-level cache, evenly: so memory and products overlap.
 */
#ifndef PRODUCTS_H
#define PRODUCTS_H

enum { TILE_VECTORS = TILE_PANELS * PANEL_VECTORS };

/* One tile's work; with `adds` to what stands in `out`. Of every superblock of the unit at `ahead`, which is next, lines
 * `ahead_from` to `ahead_to` are fetched. */
struct tile {
    const uint8_t *panels;
    int super_bytes, supers;
    const int8_t *levels;
    const float *scales, *sums;
    const int32_t *offsets;
    int k;
    float *out;
    int stride, adds;
    const uint8_t *ahead;
    int ahead_from, ahead_to;
};

/* Round 32 values to block `block` of row `row`. */
INLINE void round_block(const float *x, const struct activations *a, size_t row, int block)
{
    const size_t at = row * (a->k / BLOCK) + block;
    vf largest = vf_abs(vf_load(x));
    for (int i = LANES; i < BLOCK; i += LANES) largest = vf_max(largest, vf_abs(vf_load(x + i)));
    const float peak = vf_largest(largest);
    const vf inverse = vf_set(peak > 0.0f ? 127.0f / peak : 0.0f);
    int32_t sum = 0;
    for (int i = 0; i < BLOCK; i += LANES) sum += vf_levels(a->levels + at * BLOCK + i, vf_mul(vf_load(x + i), inverse));
    a->scales[at] = peak / 127.0f;
    a->sums[at] = a->scales[at] * (float)sum;
    a->offsets[at] = UNSIGNED_LEVELS ? -128 * sum : 0;
}

/* Four levels of a row, in every lane. */
INLINE vi row_levels(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vi_set(four);
}

/* Where vector `v` of a tile stands in a unit's superblock, whose panels have `bytes` for each input and column. */
INLINE const uint8_t *vector_at(const struct tile *t, const uint8_t *super, int v, int offset, int bytes)
{
    return super + v / PANEL_VECTORS * t->super_bytes + offset + v % PANEL_VECTORS * LANES * bytes;
}

INLINE void fetch_ahead(const struct tile *t, int super)
{
    const uint8_t *next = t->ahead + (size_t)super * 2 * t->super_bytes;
    for (int line = t->ahead_from; line < t->ahead_to; line++) __builtin_prefetch(next + line * LINE, 0, 2);
}

INLINE void store_tile(const struct tile *t, vf total[TILE_VECTORS][TILE_ROWS], const int rows)
{
    UNROLL for (int v = 0; v < TILE_VECTORS; v++)
        UNROLL for (int r = 0; r < rows; r++) {
            float *out = t->out + (size_t)r * t->stride + v * LANES;
            vf_store(out, t->adds ? vf_add(total[v][r], vf_load(out)) : total[v][r]);
        }
}

/* Add the products of one half of a superblock to `sum`. */
INLINE void add_int8(const struct tile *t, const uint8_t *super, int half, const int8_t *row, vi sum[TILE_VECTORS][TILE_ROWS],
                     const int rows)
{
    UNROLL for (int j = 0; j < BLOCK / 4; j++) {
        vi levels[TILE_VECTORS];
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) levels[v] = vi_load(vector_at(t, super, v, 64 + half * 512 + j * 64, 4));
        UNROLL for (int r = 0; r < rows; r++) {
            const vi four = row_levels(row + (size_t)r * t->k + j * 4);
            UNROLL for (int v = 0; v < TILE_VECTORS; v++) sum[v][r] = vi_dot(sum[v][r], levels[v], four);
        }
    }
}

INLINE void add_q4(const struct tile *t, const uint8_t *super, int half, const int8_t *row, vi sum[TILE_VECTORS][TILE_ROWS],
                   const int rows)
{
    UNROLL for (int j = 0; j < BLOCK / 8; j++) {
        vi low[TILE_VECTORS], high[TILE_VECTORS];
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            const vi both = vi_load(vector_at(t, super, v, 128 + half * 256 + j * 64, 4));
            low[v] = vi_low_bits(both), high[v] = vi_high_bits(both);
        }
        UNROLL for (int r = 0; r < rows; r++) {
            const int8_t *eight = row + (size_t)r * t->k + j * 8;
            const vi first = row_levels(eight), second = row_levels(eight + 4);
            UNROLL for (int v = 0; v < TILE_VECTORS; v++)
                sum[v][r] = vi_dot_small(vi_dot_small(sum[v][r], low[v], first), high[v], second);
        }
    }
}

/* A weight of 8 bits is (level - 128) * scale, one of 4 bits level * scale + minimum: of those a row's sum times the
 * minimum is added. */
INLINE void compute_tile(const struct tile *t, const int rows, const int q4)
{
    const int blocks = t->k / BLOCK;
    vf total[TILE_VECTORS][TILE_ROWS];
    UNROLL for (int v = 0; v < TILE_VECTORS; v++) UNROLL for (int r = 0; r < rows; r++) total[v][r] = vf_set(0.0f);
    for (int s = 0; s < t->supers; s++) {
        const uint8_t *super = t->panels + (size_t)s * 2 * t->super_bytes;
        fetch_ahead(t, s);
        for (int half = 0; half < 2; half++) {
            const int block = 2 * s + half;
            vi sum[TILE_VECTORS][TILE_ROWS];
            UNROLL for (int r = 0; r < rows; r++) {
                const vi begin = vi_set(q4 ? 0 : t->offsets[(size_t)r * blocks + block]);
                UNROLL for (int v = 0; v < TILE_VECTORS; v++) sum[v][r] = begin;
            }
            if (q4) add_q4(t, super, half, t->levels + block * BLOCK, sum, rows);
            else add_int8(t, super, half, t->levels + block * BLOCK, sum, rows);
            UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
                const vf scale = vf_half(vector_at(t, super, v, half * 32, 2));
                UNROLL for (int r = 0; r < rows; r++) {
                    const size_t at = (size_t)r * blocks + block;
                    total[v][r] = vf_fma(vf_mul(vf_of(sum[v][r]), scale), vf_set(t->scales[at]), total[v][r]);
                    if (!q4) continue;
                    const vf minimum = vf_half(vector_at(t, super, v, 64 + half * 32, 2));
                    total[v][r] = vf_fma(minimum, vf_set(t->sums[at]), total[v][r]);
                }
            }
        }
    }
    store_tile(t, total, rows);
}

/* A function for each number of rows: so the compiler knows it. */
typedef void tile_function(const struct tile *);
#define TILES(rows) \
    static void tile_int8_##rows(const struct tile *t) { compute_tile(t, rows, 0); } \
    static void tile_q4_##rows(const struct tile *t) { compute_tile(t, rows, 1); }
TILES(1) TILES(2) TILES(3)
#if TILE_ROWS == 3
static tile_function *const int8_tiles[] = {tile_int8_1, tile_int8_2, tile_int8_3};
static tile_function *const q4_tiles[] = {tile_q4_1, tile_q4_2, tile_q4_3};
#else
TILES(4) TILES(5) TILES(6)
static tile_function *const int8_tiles[] = {tile_int8_1, tile_int8_2, tile_int8_3, tile_int8_4, tile_int8_5, tile_int8_6};
static tile_function *const q4_tiles[] = {tile_q4_1, tile_q4_2, tile_q4_3, tile_q4_4, tile_q4_5, tile_q4_6};
#endif

/* Multiply `rows` rows by one unit of 32 columns into `out` [rows][stride], or add to it. */
static void multiply_unit(const struct matrix *m, int unit, const struct activations *a, int rows, float *out, int stride,
                          int adds)
{
    const size_t unit_bytes = (size_t)2 * m->super_bytes * (m->k / SUPER);
    const uint8_t *panels = m->panels + unit * unit_bytes;
    tile_function *const *tiles = m->super_bytes == SUPER_INT8 ? int8_tiles : q4_tiles;
    const int tile_count = (rows + TILE_ROWS - 1) / TILE_ROWS, steps = tile_count * (2 / TILE_PANELS);
    const int lines = 2 * m->super_bytes / LINE;
    for (int panel = 0, step = 0; panel < 2; panel += TILE_PANELS) {
        for (int tile = 0, row = 0, count; tile < tile_count; tile++, step++, row += count) {
            count = (rows - row + tile_count - tile - 1) / (tile_count - tile); /* as even as can be */
            const size_t block = (size_t)row * (m->k / BLOCK);
            const struct tile t = {
                .panels = panels + panel * m->super_bytes, .super_bytes = m->super_bytes, .supers = m->k / SUPER,
                .levels = a->levels + (size_t)row * m->k, .scales = a->scales + block, .sums = a->sums + block,
                .offsets = a->offsets + block, .k = m->k,
                .out = out + (size_t)row * stride + panel * PANEL, .stride = stride, .adds = adds,
                .ahead = panels + unit_bytes, .ahead_from = lines * step / steps, .ahead_to = lines * (step + 1) / steps,
            };
            tiles[count - 1](&t);
        }
    }
}

/* The units that thread `me` computes of a matrix: a fixed, contiguous part. */
INLINE void own_units(const struct native *n, int units, int me, int *from, int *to)
{
    *from = (int)((long)units * me / n->config.threads);
    *to = (int)((long)units * (me + 1) / n->config.threads);
}

/* Fetch the first unit of one's part of the matrix that comes next. */
INLINE void fetch_first_units(const struct native *n, const struct matrix *m, int me, int units_at_a_time)
{
    int from, to;
    own_units(n, m->n / UNIT / units_at_a_time, me, &from, &to);
    const size_t unit_bytes = (size_t)2 * m->super_bytes * (m->k / SUPER);
    const uint8_t *first = m->panels + (size_t)from * units_at_a_time * unit_bytes;
    for (size_t at = 0; from < to && at < unit_bytes * units_at_a_time; at += LINE) __builtin_prefetch(first + at, 0, 2);
}

/* Multiply rows by one's part of a matrix into `out` [rows][stride], or add to it; and its bias, if it has one. */
static void multiply(const struct native *n, int me, const struct matrix *m, const struct activations *a, int rows, float *out,
                     int stride, int adds)
{
    int from, to;
    own_units(n, m->n / UNIT, me, &from, &to);
    for (int unit = from; unit < to; unit++) multiply_unit(m, unit, a, rows, out + unit * UNIT, stride, adds);
    const int end = to * UNIT < m->outputs ? to * UNIT : m->outputs;
    for (int r = 0; r < rows && m->bias; r++)
        for (int i = from * UNIT; i < end; i++) out[(size_t)r * stride + i] += m->bias[i];
}

#endif
