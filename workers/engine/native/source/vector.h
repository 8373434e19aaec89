/*
 * What a kernel's instruction set has to offer, under one set of names: `vf` is a vector of LANES floats, `vi` of LANES
 * 32-bit integers or of four bytes or two bfloat16 values in each. A tile of a product is TILE_PANELS panels by
 * TILE_ROWS rows, one of attention has up to TILE_QUERIES: so many that sums stay in registers. UNSIGNED_LEVELS: `vi_dot`
 * takes weights' levels with their zero point of 128, and a sum begins with what that adds.
 */
#ifndef VECTOR_H
#define VECTOR_H

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#if defined(KERNEL_PORTABLE)
#include "vector_portable.h"
#elif defined(__AVX512VNNI__)
#include "vector_avx512.h"
#elif defined(__AVX2__)
#include "vector_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "vector_neon.h"
#endif

enum { PANEL_VECTORS = PANEL / LANES };

/* e to the power of each lane, for x <= 0 and a little above; below -87 it is 1e-38. A polynomial for 2 to the fraction
 * (relative error 2e-6), times a power of two. */
INLINE vf vf_exp(vf x)
{
    vf y = vf_mul(vf_max(x, vf_set(-87.0f)), vf_set(1.44269504f));
    vf whole = vf_round(y), part = vf_sub(y, whole);
    vf p = vf_fma(vf_set(1.3333558e-3f), part, vf_set(9.6181291e-3f));
    p = vf_fma(p, part, vf_set(5.5504109e-2f));
    p = vf_fma(p, part, vf_set(2.4022651e-1f));
    p = vf_fma(p, part, vf_set(6.9314718e-1f));
    p = vf_fma(p, part, vf_set(1.0f));
    return vf_scale2(p, whole);
}

#endif
