/*
 * The C API of the store: objects of bytes in a pool of memory, by name.
 *
 * Names, types and layouts are those that Mooncake's C users (its Go package, its Rust crate) compile against; link with
 * -lmooncake_store.
 *
 * Rules
 * - A store is a client of a pool from mooncake_store_setup on. Before, calls answer -600. Handles are no addresses: one
 *   that is null, was destroyed or never made is answered with -1, not with a crash.
 * - Codes: -200 no room, -600 arguments that cannot work, -703 being written, -704 missing, -706 leased (somebody read it a
 *   short time ago), -707 the lease ended under the read, -800 the bytes could not be moved, -900 the master cannot be
 *   reached, -901 it did not answer in time. mooncake_store_last_error has the words.
 * - Functions for many keys answer 0 when the call could be made; results_out has an answer for each key, also when not.
 * - Text and keys end with a NUL and are not kept. Memory named by a call is the caller's until the call returns.
 * - Memory need not be registered over TCP and on one host. A range that starts in registered memory and reaches over its
 *   end is refused.
 * - All functions may be called from any thread. In a child made by fork the parent's stores are refused.
 */
#ifndef MOONCAKE_STORE_C_H
#define MOONCAKE_STORE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *mooncake_store_t;

/* How the replicas of an object are placed. Where a function takes a null pointer instead: one replica, anywhere. */
struct mooncake_replicate_config {
    size_t replica_num;              /* memory replicas, at least 1; as many as there is room for */
    int with_soft_pin;               /* not 0: evicted after those without */
    int with_hard_pin;               /* not 0: never evicted */
    const char **preferred_segments; /* names of segments to try first */
    size_t preferred_segments_count;
};
typedef struct mooncake_replicate_config mooncake_replicate_config_t;

/* Life. A store also leaves its pool at exit(). */
#ifdef __cplusplus
mooncake_store_t mooncake_store_create();
#else
mooncake_store_t mooncake_store_create(void);
#endif
void mooncake_store_destroy(mooncake_store_t store);

/* Joins a pool: 0 or a code. global_segment_size bytes are lent to it: 0, or at least 16 MiB. */
int mooncake_store_setup(mooncake_store_t store, const char *local_hostname, const char *metadata_server,
                         uint64_t global_segment_size, uint64_t local_buffer_size, const char *protocol,
                         const char *device_name, const char *master_server_addr);
/* Always -600: it has no address of a master. */
int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
                            uint64_t mount_segment_size);
/* 0 healthy, 1 not set up, 2 the master does not answer. */
int mooncake_store_health_check(mooncake_store_t store);
/* Writes "host:port": 0 or a code. */
int mooncake_store_get_hostname(mooncake_store_t store, char *buf_out, size_t buf_len);
/* Writes the last failure in words, cut to the buffer; how many bytes they have. Not in Mooncake. */
int64_t mooncake_store_last_error(mooncake_store_t store, char *buf_out, size_t buf_len);

/* Objects: 0 or a code. What is there already stays as it is and is a success. */
int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
                       const mooncake_replicate_config_t *config);
/* Without a copy in this process. Size 0: 0, and nothing is stored (in a batch -600). */
int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
                            const mooncake_replicate_config_t *config);
int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers, const size_t *sizes,
                                  size_t count, const mooncake_replicate_config_t *config, int *results_out);
/* Bytes of the object or a code; the buffer may be larger. */
int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size);
int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers, const size_t *sizes,
                                  size_t count, int64_t *results_out);

/* Keys: 1 there, 0 not there, or a code. */
int mooncake_store_is_exist(mooncake_store_t store, const char *key);
int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count, int *results_out);
/* Bytes of the object or a code. */
int64_t mooncake_store_get_size(mooncake_store_t store, const char *key);
/* force not 0: also what somebody read a short time ago. */
int mooncake_store_remove(mooncake_store_t store, const char *key, int force);
int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force);
int64_t mooncake_store_remove_all(mooncake_store_t store, int force);

/* Memory that zero-copy calls name: 0 or a code. It stays mapped until it is taken back. */
int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size);
int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer);

#ifdef __cplusplus
}
#endif

#endif
