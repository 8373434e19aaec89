/* Vectors of 4 lanes: NEON of 64-bit ARM, with its dot product. */
#include <arm_neon.h>

#define LANES 4
#define TILE_PANELS 1
#define TILE_QUERIES 6
#define TILE_ROWS 6 /* 24 sums, 4 vectors of levels and one of a row, of 32 registers */
#define UNSIGNED_LEVELS 0

typedef float32x4_t vf;
typedef int32x4_t vi;

INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf vf_add(vf x, vf y) { return vaddq_f32(x, y); }
INLINE vf vf_sub(vf x, vf y) { return vsubq_f32(x, y); }
INLINE vf vf_mul(vf x, vf y) { return vmulq_f32(x, y); }
INLINE vf vf_div(vf x, vf y) { return vdivq_f32(x, y); }
INLINE vf vf_fma(vf x, vf y, vf sum) { return vfmaq_f32(sum, x, y); }
INLINE vf vf_max(vf x, vf y) { return vmaxq_f32(x, y); }
INLINE vf vf_abs(vf x) { return vabsq_f32(x); }
INLINE vf vf_round(vf x) { return vrndnq_f32(x); }
/* x * 2 to the power: for normal numbers whose product is normal. */
INLINE vf vf_scale2(vf x, vf power)
{
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(vcvtnq_s32_f32(power), 23)));
}
INLINE float vf_sum(vf x) { return vaddvq_f32(x); }
INLINE float vf_largest(vf x) { return vmaxvq_f32(x); }

/* 4 float16 values. */
INLINE vf vf_half(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
INLINE vf vf_of(vi x) { return vcvtq_f32_s32(x); }

/* Round to 8 bits, to nearest even; returns the lanes' sum. */
INLINE int32_t vf_levels(int8_t *p, vf x)
{
    const int32x4_t levels = vcvtnq_s32_f32(x);
    const int16x4_t words = vqmovn_s32(levels);
    const uint32_t four = vget_lane_u32(vreinterpret_u32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
    memcpy(p, &four, sizeof four);
    return vaddvq_s32(levels);
}

INLINE vi vi_set(int32_t x) { return vdupq_n_s32(x); }
INLINE vi vi_load(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
/* Levels from 0 to 15 times the row's, four of each in a lane. */
INLINE vi vi_dot_small(vi sum, vi levels, vi row)
{
    return vdotq_s32(sum, vreinterpretq_s8_s32(levels), vreinterpretq_s8_s32(row));
}
/* The same of levels with their zero point of 128: less 128 they are signed bytes. */
INLINE vi vi_dot(vi sum, vi levels, vi row)
{
    return vi_dot_small(sum, veorq_s32(levels, vreinterpretq_s32_u8(vdupq_n_u8(128))), row);
}
INLINE vi vi_low_bits(vi x) { return vandq_s32(x, vreinterpretq_s32_u8(vdupq_n_u8(15))); }
INLINE vi vi_high_bits(vi x) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), 4)); }

/* bfloat16: in pairs, the first in the low half of a lane. */
INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    vst1_u16(p, vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16));
}
INLINE vf vf_dot_bf16(vf sum, vi x, vi y)
{
    const int32x4_t high = vdupq_n_s32((int)0xffff0000);
    sum = vfmaq_f32(sum, vreinterpretq_f32_s32(vshlq_n_s32(x, 16)), vreinterpretq_f32_s32(vshlq_n_s32(y, 16)));
    return vfmaq_f32(sum, vreinterpretq_f32_s32(vandq_s32(x, high)), vreinterpretq_f32_s32(vandq_s32(y, high)));
}
