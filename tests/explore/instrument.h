/* instrument.h: included in front of the sources of the shared-memory collectives (rendezvous.c,
   window.c, reduce.c, world.c) when they are built for the explorer. With it other fibers may run
   before every atomic operation, and in the middle of every copy. */
#ifndef TUTTI_TESTS_INSTRUMENT_H
#define TUTTI_TESTS_INSTRUMENT_H
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
void explore_pause(void);
#define TUTTI_RENDEZVOUS_GLANCES 1 /* each look is a choice of the fiber to run */
#define TUTTI_RENDEZVOUS_PATIENCE 2
#define TUTTI_RENDEZVOUS_CORES 1024 /* the same runs on every machine */
void *explore_copy(void *to, const void *from, size_t bytes);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_add_explicit
#ifdef __clang__
#define atomic_load_explicit(at, order) (explore_pause(), __c11_atomic_load(at, order))
#define atomic_store_explicit(at, value, order) \
    (explore_pause(), __c11_atomic_store(at, value, order))
#define atomic_fetch_and_explicit(at, value, order) \
    (explore_pause(), __c11_atomic_fetch_and(at, value, order))
#define atomic_fetch_add_explicit(at, value, order) \
    (explore_pause(), __c11_atomic_fetch_add(at, value, order))
#else
#define atomic_load_explicit(at, order) \
    __extension__({ \
        explore_pause(); \
        __auto_type at_ = (at); \
        __typeof__((void)0, *at_) got_; \
        __atomic_load(at_, &got_, (order)); \
        got_; \
    })
#define atomic_store_explicit(at, value, order) \
    __extension__({ \
        explore_pause(); \
        __auto_type at_ = (at); \
        __typeof__((void)0, *at_) set_ = (value); \
        __atomic_store(at_, &set_, (order)); \
    })
#define atomic_fetch_and_explicit(at, value, order) \
    __extension__({ \
        explore_pause(); \
        __atomic_fetch_and((at), (value), (order)); \
    })
#define atomic_fetch_add_explicit(at, value, order) \
    __extension__({ \
        explore_pause(); \
        __atomic_fetch_add((at), (value), (order)); \
    })
#endif
#define memcpy(to, from, bytes) explore_copy(to, from, bytes)
#endif
