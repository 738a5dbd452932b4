/* sanitized.h: which sanitizer a test is built with, as gcc says it and as clang does, and how much
   the thread sanitizer is asked to watch. Every access takes it ten times as long. A race shows in
   a few rounds as well as in many: the sanitizer asks whether two accesses are ordered, and not
   whether they have collided. */
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

/* A number of rounds, ranks or seeds: the usual one, and a smaller one under the thread
   sanitizer. */
#define UNLESS_THREADS_ARE_WATCHED(usual, few) (SANITIZED_THREAD ? (few) : (usual))
/* How many of an array's elements a loop takes: all, and the first three under that sanitizer. */
#define FEW_OF(array) UNLESS_THREADS_ARE_WATCHED(TUTTI_LENGTH(array), 3)
#endif
