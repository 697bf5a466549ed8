/*
 * The calls of the Go package, in the order its users make them, with the arguments it makes: a config with one replica
 * where the caller gave none, 256 bytes for the name, memory of the caller registered for the calls without a copy.
 *
 *   store HOST:PORT   of the master
 */
#include <string.h>

#include "check.h"
#include "store_c.h"

enum { SEGMENT = 64 << 20, BUFFER = 16 << 20, BLOCK = 65536, BLOCKS = 4 };

static char memory[(2 * BLOCKS + 1) * BLOCK];
static const char *keys[BLOCKS + 1] = {"block/0", "block/1", "block/2", "block/3", "missing"};

static void one_object(mooncake_store_t store) {
    char buffer[64];
    const char *value = "hello from Go";
    mooncake_replicate_config_t config;
    memset(&config, 0, sizeof config);
    config.replica_num = 1;
    CHECK_INT(mooncake_store_put(store, "one", value, strlen(value), &config), 0);
    CHECK_INT(mooncake_store_put(store, "one", "other", 5, &config), 0);
    CHECK_INT(mooncake_store_is_exist(store, "one"), 1);
    CHECK_INT(mooncake_store_is_exist(store, "missing"), 0);
    CHECK_INT(mooncake_store_get_size(store, "one"), strlen(value));
    CHECK_INT(mooncake_store_get_size(store, "missing"), -704);
    CHECK_INT(mooncake_store_get_into(store, "one", buffer, strlen(value)), strlen(value));
    CHECK(memcmp(buffer, value, strlen(value)) == 0);
    CHECK_INT(mooncake_store_get_into(store, "one", buffer, sizeof buffer), strlen(value));
    CHECK_INT(mooncake_store_get_into(store, "one", buffer, 3), -600);
    CHECK_INT(mooncake_store_get_into(store, "missing", buffer, sizeof buffer), -704);
    CHECK_INT(mooncake_store_remove(store, "one", 0), -706);
    CHECK_INT(mooncake_store_remove(store, "one", 1), 0);
    CHECK_INT(mooncake_store_is_exist(store, "one"), 0);
    CHECK_INT(mooncake_store_remove(store, "one", 1), -704);
}

static void many_objects(mooncake_store_t store) {
    char name[256];
    const char *segments[1];
    void *from[BLOCKS], *into[BLOCKS + 1];
    size_t sizes[BLOCKS + 1];
    int codes[BLOCKS + 1];
    int64_t got[BLOCKS + 1];
    mooncake_replicate_config_t config = {1, 1, 1, segments, 1};
    CHECK_INT(mooncake_store_get_hostname(store, name, sizeof name), 0);
    segments[0] = name;
    for (int i = 0; i <= BLOCKS; i++) {
        if (i < BLOCKS) {
            from[i] = memory + i * BLOCK;
            memset(from[i], 'a' + i, BLOCK);
        }
        into[i] = memory + (BLOCKS + i) * BLOCK;
        sizes[i] = BLOCK;
    }
    CHECK_INT(mooncake_store_register_buffer(store, memory, sizeof memory), 0);
    CHECK_INT(mooncake_store_register_buffer(store, memory, sizeof memory), -600);
    CHECK_INT(mooncake_store_batch_put_from(store, keys, from, sizes, BLOCKS, &config, codes), 0);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK_INT(codes[i], 0);
    }
    CHECK_INT(mooncake_store_put_from(store, "single", from[1], BLOCK, NULL), 0);
    CHECK_INT(mooncake_store_batch_is_exist(store, keys, BLOCKS + 1, codes), 0);
    CHECK_INT(mooncake_store_batch_get_into(store, keys, into, sizes, BLOCKS + 1, got), 0);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK_INT(codes[i], 1);
        CHECK_INT(got[i], BLOCK);
        CHECK(memcmp(from[i], into[i], BLOCK) == 0);
    }
    CHECK_INT(codes[BLOCKS], 0);
    CHECK_INT(got[BLOCKS], -704);
    CHECK_INT(mooncake_store_get_into(store, "single", into[0], BLOCK), BLOCK);
    CHECK(memcmp(from[1], into[0], BLOCK) == 0);
    /* One object that cannot work leaves the others alone. */
    from[1] = NULL;
    keys[2] = "";
    CHECK_INT(mooncake_store_batch_put_from(store, keys, from, sizes, BLOCKS, NULL, codes), 0);
    CHECK_INT(codes[0], 0);
    CHECK_INT(codes[1], -600);
    CHECK_INT(codes[2], -600);
    CHECK_INT(codes[3], 0);
    /* Over the end of what is registered. */
    CHECK_INT(mooncake_store_get_into(store, "single", memory + sizeof memory - 1, BLOCK), -600);
    CHECK_INT(mooncake_store_unregister_buffer(store, memory), 0);
    CHECK_INT(mooncake_store_unregister_buffer(store, memory), -600);
    CHECK_INT(mooncake_store_remove_by_regex(store, "^block/[01]$", 1), 2);
    CHECK_INT(mooncake_store_remove_by_regex(store, "([", 1), -600);
    CHECK_INT(mooncake_store_remove_all(store, 1), 3);
}

int main(int count, char **arguments) {
    CHECK_INT(count, 2);
    mooncake_store_t store = mooncake_store_create();
    CHECK(store != NULL);
    CHECK_INT(mooncake_store_health_check(store), 1);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", SEGMENT, BUFFER, "tcp", "", arguments[1]), 0);
    CHECK_INT(mooncake_store_health_check(store), 0);
    one_object(store);
    many_objects(store);
    mooncake_store_destroy(store);
    CHECK_INT(mooncake_store_health_check(store), -1);
    puts("store: ok");
    return 0;
}
