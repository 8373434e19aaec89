/* Vectors of 16 lanes: AVX-512 with VNNI, and with BF16 where the compiler is told so. */
#include <immintrin.h>

#define LANES 16
#define TILE_PANELS 2
#define TILE_ROWS 6
#define TILE_QUERIES 6
#define UNSIGNED_LEVELS 1

typedef __m512 vf;
typedef __m512i vi;

INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf vf_add(vf x, vf y) { return _mm512_add_ps(x, y); }
INLINE vf vf_sub(vf x, vf y) { return _mm512_sub_ps(x, y); }
INLINE vf vf_mul(vf x, vf y) { return _mm512_mul_ps(x, y); }
INLINE vf vf_div(vf x, vf y) { return _mm512_div_ps(x, y); }
INLINE vf vf_fma(vf x, vf y, vf sum) { return _mm512_fmadd_ps(x, y, sum); }
INLINE vf vf_max(vf x, vf y) { return _mm512_max_ps(x, y); }
INLINE vf vf_abs(vf x) { return _mm512_abs_ps(x); }
INLINE vf vf_round(vf x) { return _mm512_roundscale_ps(x, 0); }
INLINE vf vf_scale2(vf x, vf power) { return _mm512_scalef_ps(x, power); }
INLINE float vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
INLINE float vf_largest(vf x) { return _mm512_reduce_max_ps(x); }

/* 16 float16 values. */
INLINE vf vf_half(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vf vf_of(vi x) { return _mm512_cvtepi32_ps(x); }

/* Round to 8 bits, to nearest even; returns the lanes' sum. */
INLINE int32_t vf_levels(int8_t *p, vf x)
{
    __m512i levels = _mm512_cvtps_epi32(x);
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(levels));
    return _mm512_reduce_add_epi32(levels);
}

INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
/* Each lane's four unsigned levels times the same four of the row. */
INLINE vi vi_dot(vi sum, vi levels, vi row) { return _mm512_dpbusd_epi32(sum, levels, row); }
/* The same of levels from 0 to 15. */
INLINE vi vi_dot_small(vi sum, vi levels, vi row) { return _mm512_dpbusd_epi32(sum, levels, row); }
INLINE vi vi_low_bits(vi x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
INLINE vi vi_high_bits(vi x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }

/* bfloat16: in pairs, the first in the low half of a lane. */
#ifdef __AVX512BF16__
INLINE void vf_store_bf16(uint16_t *p, vf x) { _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x)); }
INLINE vf vf_dot_bf16(vf sum, vi x, vi y) { return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y); }
#else
INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}
INLINE vf vf_dot_bf16(vf sum, vi x, vi y)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), sum);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, high)), _mm512_castsi512_ps(_mm512_and_si512(y, high)), sum);
}
#endif
