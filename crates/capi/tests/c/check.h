/* Checks for the test programs: a failed one says where and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define CHECK_INT(got, wanted)                                                       \
    do {                                                                             \
        long long g = (long long)(got), w = (long long)(wanted);                     \
        if (g != w) {                                                                \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__,     \
                    #got, g, w);                                                     \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#endif
