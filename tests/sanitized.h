/* sanitized.h: which sanitizer a test is built with, as gcc says it and as clang does, and how much
   of a test it watches. Every access takes the address sanitizer five times as long, the thread
   sanitizer ten times. A race shows in a few rounds as well as in many: that sanitizer asks whether
   two accesses are ordered, and not whether they have collided. */
#ifndef TUTTI_TESTS_SANITIZED_H
#define TUTTI_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED_ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SANITIZED_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREAD 1
#endif
#endif
#ifndef SANITIZED_ADDRESS
#define SANITIZED_ADDRESS 0
#endif
#ifndef SANITIZED_THREAD
#define SANITIZED_THREAD 0
#endif
#define SANITIZED (SANITIZED_ADDRESS || SANITIZED_THREAD)

/* A number of rounds, ranks or seeds: the usual one, and a smaller one under a sanitizer; under the
   address sanitizer the usual one too, where TUTTI_LONG is on (.ci/run long). */
#ifdef TUTTI_LONG
#define UNLESS_SANITIZED(usual, few) (SANITIZED_THREAD ? (few) : (usual))
#else
#define UNLESS_SANITIZED(usual, few) (SANITIZED ? (few) : (usual))
#endif
/* How many of an array's elements a loop takes: all, and the first three under a sanitizer. */
#define FEW_OF(array) UNLESS_SANITIZED(TUTTI_LENGTH(array), 3)
#endif
