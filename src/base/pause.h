/* pause.h: what a thread does between two looks at a word for which it spins. */
#ifndef TUTTI_BASE_PAUSE_H
#define TUTTI_BASE_PAUSE_H

/* Leaves the core's resources to others for a moment. The compiler reads memory anew after it. On
   arm64 `yield` does nothing on most cores; `isb` empties the pipeline. */
static inline void tutti_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}
#endif
