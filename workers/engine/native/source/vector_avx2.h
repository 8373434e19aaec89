/* Vectors of 8 lanes: AVX2 with FMA and F16C, and with AVX-VNNI where the compiler is told so. */
#include <immintrin.h>

#define LANES 8
#define TILE_PANELS 1
#define TILE_QUERIES 3

typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf vf_add(vf x, vf y) { return _mm256_add_ps(x, y); }
INLINE vf vf_sub(vf x, vf y) { return _mm256_sub_ps(x, y); }
INLINE vf vf_mul(vf x, vf y) { return _mm256_mul_ps(x, y); }
INLINE vf vf_div(vf x, vf y) { return _mm256_div_ps(x, y); }
INLINE vf vf_fma(vf x, vf y, vf sum) { return _mm256_fmadd_ps(x, y, sum); }
INLINE vf vf_max(vf x, vf y) { return _mm256_max_ps(x, y); }
INLINE vf vf_abs(vf x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
INLINE vf vf_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* x * 2 to the power: for normal numbers whose product is normal. */
INLINE vf vf_scale2(vf x, vf power)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_cvtps_epi32(power), 23)));
}
INLINE float vf_sum(vf x)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float vf_largest(vf x)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* 8 float16 values. */
INLINE vf vf_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vf vf_of(vi x) { return _mm256_cvtepi32_ps(x); }

/* Round to 8 bits, to nearest even; returns the lanes' sum. */
INLINE int32_t vf_levels(int8_t *p, vf x)
{
    const __m256i levels = _mm256_cvtps_epi32(x);
    const __m128i low = _mm256_castsi256_si128(levels), high = _mm256_extracti128_si256(levels, 1);
    const __m128i words = _mm_packs_epi32(low, high);
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(words, words));
    const __m128i four = _mm_add_epi32(low, high);
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
#ifdef __AVXVNNI__
#define TILE_ROWS 6 /* 12 sums, 2 vectors of levels and one of a row, of 16 registers */
#define UNSIGNED_LEVELS 1
INLINE vi vi_dot(vi sum, vi levels, vi row) { return _mm256_dpbusd_avx_epi32(sum, levels, row); }
INLINE vi vi_dot_small(vi sum, vi levels, vi row) { return _mm256_dpbusd_avx_epi32(sum, levels, row); }
#else
#define TILE_ROWS 3
#define UNSIGNED_LEVELS 0
INLINE vi vi_add_words(vi sum, vi words) { return _mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1))); }
/* maddubs multiplies unsigned by signed bytes and adds pairs, with saturation at 32,767. A level less 128 is from -128 to
 * 127, a row's from -127 to 127; with the level's sign moved to the row, a pair is at most 2 * 128 * 127 = 32,512: exact. */
INLINE vi vi_dot(vi sum, vi levels, vi row)
{
    const vi level = _mm256_xor_si256(levels, _mm256_set1_epi8(-128));
    return vi_add_words(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(level), _mm256_sign_epi8(row, level)));
}
/* Levels from 0 to 15: a pair is at most 2 * 15 * 127 = 3,810. */
INLINE vi vi_dot_small(vi sum, vi levels, vi row) { return vi_add_words(sum, _mm256_maddubs_epi16(levels, row)); }
#endif
INLINE vi vi_low_bits(vi x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
INLINE vi vi_high_bits(vi x) { return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15)); }

/* bfloat16: in pairs, the first in the low half of a lane. */
INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i high = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((__m128i *)p, words);
}
INLINE vf vf_dot_bf16(vf sum, vi x, vi y)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    sum = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)), sum);
    return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(x, high)), _mm256_castsi256_ps(_mm256_and_si256(y, high)), sum);
}
