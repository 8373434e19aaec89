/* Vectors of 4 lanes for any machine: the compiler's vectors, and no machine's instructions. */

#define LANES 4
#define TILE_PANELS 1
#define TILE_QUERIES 3
#define TILE_ROWS 3
#define UNSIGNED_LEVELS 1

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int16_t vw __attribute__((vector_size(16))); /* two words in a lane of `vi` */
typedef uint16_t v4w __attribute__((vector_size(8)));

INLINE vf vf_set(float x) { return (vf){x, x, x, x}; }
INLINE vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
INLINE vf vf_add(vf x, vf y) { return x + y; }
INLINE vf vf_sub(vf x, vf y) { return x - y; }
INLINE vf vf_mul(vf x, vf y) { return x * y; }
INLINE vf vf_div(vf x, vf y) { return x / y; }
INLINE vf vf_fma(vf x, vf y, vf sum) { return x * y + sum; }
INLINE vf vf_max(vf x, vf y)
{
    const vi greater = x > y;
    return (vf)(((vi)x & greater) | ((vi)y & ~greater));
}
INLINE vf vf_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
/* Below 2 to the 22nd: the sum has no bits left for a fraction. */
INLINE vf vf_round(vf x) { return x + 12582912.0f - 12582912.0f; }
/* x * 2 to the power: for normal numbers whose product is normal. */
INLINE vf vf_scale2(vf x, vf power) { return (vf)((vu)x + ((vu)__builtin_convertvector(power, vi) << 23)); }
INLINE float vf_sum(vf x) { return (x[0] + x[1]) + (x[2] + x[3]); }
INLINE float vf_largest(vf x)
{
    const float low = x[0] > x[1] ? x[0] : x[1], high = x[2] > x[3] ? x[2] : x[3];
    return low > high ? low : high;
}

/* 4 float16 values, which are finite: the exponent's bias is 112 less. */
INLINE vf vf_half(const uint8_t *p)
{
    v4w halves;
    memcpy(&halves, p, sizeof halves);
    const vu bits = __builtin_convertvector(halves, vu);
    return (vf)((vu)((vf)((bits & 0x7fff) << 13) * 0x1p112f) | (bits & 0x8000) << 16);
}
INLINE vf vf_of(vi x) { return __builtin_convertvector(x, vf); }

/* Round to 8 bits, to nearest even; returns the lanes' sum. */
INLINE int32_t vf_levels(int8_t *p, vf x)
{
    const vi levels = __builtin_convertvector(vf_round(x), vi);
    for (int i = 0; i < LANES; i++) p[i] = (int8_t)levels[i];
    return levels[0] + levels[1] + levels[2] + levels[3];
}

INLINE vi vi_set(int32_t x) { return (vi){x, x, x, x}; }
INLINE vi vi_load(const uint8_t *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE vi vi_add_words(vi sum, vw words) { return sum + ((vi)((vu)words << 16) >> 16) + ((vi)words >> 16); }
/* Each lane's four unsigned levels times the same four of the row: a product is at most 255 * 127 = 32,385, a word. */
INLINE vi vi_dot(vi sum, vi levels, vi row)
{
    const vw even = (vw)(levels & 0x00ff00ff), odd = (vw)((vu)levels >> 8 & 0x00ff00ff);
    const vw row_odd = (vw)row >> 8, row_even = (vw)((vu)row << 8 & 0xff00ff00) >> 8;
    return vi_add_words(vi_add_words(sum, even * row_even), odd * row_odd);
}
/* The same of levels from 0 to 15: four products are a word. */
INLINE vi vi_dot_small(vi sum, vi levels, vi row)
{
    const vw even = (vw)levels & 15, odd = (vw)((vu)levels >> 8 & 0x00ff00ff);
    const vw row_odd = (vw)row >> 8, row_even = (vw)((vu)row << 8 & 0xff00ff00) >> 8;
    return vi_add_words(sum, even * row_even + odd * row_odd);
}
INLINE vi vi_low_bits(vi x) { return x & 0x0f0f0f0f; }
INLINE vi vi_high_bits(vi x) { return (vi)((vu)x >> 4 & 0x0f0f0f0f); }

/* bfloat16: in pairs, the first in the low half of a lane. */
INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    const vu bits = (vu)x, rounded = bits + ((bits >> 16 & 1) + 0x7fff);
    const v4w words = __builtin_convertvector(rounded >> 16, v4w);
    memcpy(p, &words, sizeof words);
}
INLINE vf vf_dot_bf16(vf sum, vi x, vi y)
{
    sum = vf_fma((vf)((vu)x << 16), (vf)((vu)y << 16), sum);
    return vf_fma((vf)((vu)x & 0xffff0000), (vf)((vu)y & 0xffff0000), sum);
}
