/* lanes_fold.h: private: lanes_sum and lanes_greatest, the same code for AVX2 and AVX-512.
   Included by lanes_avx2.h and lanes_avx512.h after lanes_halves, which splits sixteen lanes into
   two registers of eight. lanes_scalar.h defines the order of the operations. */
#ifndef TUTTI_NN_LANES_FOLD_H
#define TUTTI_NN_LANES_FOLD_H

INLINE float lanes_sum(lanes a)
{
    __m256 low, high;
    __m128 four;
    lanes_halves(a, &low, &high);
    low = _mm256_add_ps(low, high);
    four = _mm_add_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

INLINE float lanes_greatest(lanes a)
{
    __m256 low, high;
    __m128 four;
    lanes_halves(a, &low, &high);
    low = _mm256_max_ps(low, high);
    four = _mm_max_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
#endif
