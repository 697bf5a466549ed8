/* Every function of the store with arguments that make no sense: each is answered with an error. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "store_c.h"

static char memory[4096];

/* Each call on a store that cannot do it gives `code`. */
static void refused(mooncake_store_t store, int code) {
    const char *keys[2] = {"a", "b"};
    void *buffers[2] = {memory, memory};
    size_t sizes[2] = {8, 8};
    int codes[2] = {7, 7};
    int64_t numbers[2] = {7, 7};
    CHECK_INT(mooncake_store_init_all(store, "tcp", "", 1 << 24), code);
    CHECK_INT(mooncake_store_put(store, "k", "v", 1, NULL), code);
    CHECK_INT(mooncake_store_put_from(store, "k", memory, 8, NULL), code);
    CHECK_INT(mooncake_store_batch_put_from(store, keys, buffers, sizes, 2, NULL, codes), code);
    CHECK_INT(mooncake_store_get_into(store, "k", memory, 8), code);
    CHECK_INT(mooncake_store_batch_get_into(store, keys, buffers, sizes, 2, numbers), code);
    CHECK_INT(codes[1], code);
    CHECK_INT(numbers[1], code);
    CHECK_INT(mooncake_store_is_exist(store, "k"), code);
    CHECK_INT(mooncake_store_batch_is_exist(store, keys, 2, codes), code);
    CHECK_INT(mooncake_store_get_size(store, "k"), code);
    CHECK_INT(mooncake_store_get_hostname(store, memory, sizeof memory), code);
    CHECK_INT(mooncake_store_remove(store, "k", 0), code);
    CHECK_INT(mooncake_store_remove_by_regex(store, ".*", 0), code);
    CHECK_INT(mooncake_store_remove_all(store, 0), code);
    CHECK_INT(mooncake_store_register_buffer(store, memory, 8), code);
    CHECK_INT(mooncake_store_unregister_buffer(store, memory), code);
}

static void bad_setups(mooncake_store_t store, const char *master) {
    char words[128];
    CHECK_INT(mooncake_store_setup(store, NULL, "P2PHANDSHAKE", 0, 0, "tcp", "", master), -600);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", NULL, 0, 0, "tcp", "", master), -600);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", 0, 0, NULL, "", master), -600);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", NULL), -600);
    CHECK(mooncake_store_last_error(store, words, sizeof words) > 0);
    CHECK(strstr(words, "master_server_addr") != NULL);
    CHECK_INT(mooncake_store_setup(store, "", "P2PHANDSHAKE", 0, 0, "tcp", "", master), -600);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", 1 << 20, 0, "tcp", "", master), -600);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", 0, 0, "pigeon", "", master), -600);
    CHECK_INT(mooncake_store_health_check(store), 1);
}

/* Pointers that are null on a store that is set up. */
static void null_pointers(mooncake_store_t store) {
    const char *keys[2] = {"a", NULL};
    void *buffers[2] = {memory, NULL};
    size_t sizes[2] = {8, 8};
    int codes[2] = {7, 7};
    int64_t numbers[2] = {7, 7};
    mooncake_replicate_config_t config = {0, 0, 0, NULL, 0};
    CHECK_INT(mooncake_store_put(store, NULL, "v", 1, NULL), -600);
    CHECK_INT(mooncake_store_put(store, "k", NULL, 1, NULL), -600);
    CHECK_INT(mooncake_store_put(store, "k", "", 0, NULL), -600);
    CHECK_INT(mooncake_store_put(store, "k", "v", SIZE_MAX, NULL), -600);
    CHECK_INT(mooncake_store_put(store, "k", "v", 1, &config), -600);
    config.replica_num = 1;
    config.preferred_segments_count = 3;
    CHECK_INT(mooncake_store_put(store, "k", "v", 1, &config), -600);
    CHECK_INT(mooncake_store_put_from(store, "k", NULL, 8, NULL), -600);
    CHECK_INT(mooncake_store_put_from(store, "k", memory, 0, NULL), 0);
    CHECK_INT(mooncake_store_is_exist(store, "k"), 0);
    CHECK_INT(mooncake_store_get_into(store, "k", NULL, 8), -600);
    CHECK_INT(mooncake_store_is_exist(store, NULL), -600);
    CHECK_INT(mooncake_store_is_exist(store, ""), 0);
    CHECK_INT(mooncake_store_get_size(store, ""), -704);
    CHECK_INT(mooncake_store_remove_by_regex(store, NULL, 0), -600);
    CHECK_INT(mooncake_store_batch_put_from(store, keys, buffers, sizes, 2, NULL, codes), -600);
    CHECK_INT(codes[0], -600);
    CHECK_INT(mooncake_store_batch_put_from(store, NULL, NULL, NULL, 2, NULL, NULL), -600);
    CHECK_INT(mooncake_store_batch_put_from(store, NULL, NULL, NULL, 0, NULL, NULL), 0);
    keys[1] = "b";
    CHECK_INT(mooncake_store_batch_get_into(store, keys, NULL, sizes, 2, numbers), -600);
    CHECK_INT(numbers[1], -600);
    CHECK_INT(mooncake_store_batch_is_exist(store, NULL, 1, codes), -600);
    CHECK_INT(mooncake_store_register_buffer(store, NULL, 8), -600);
    CHECK_INT(mooncake_store_register_buffer(store, memory, 0), -600);
    CHECK_INT(mooncake_store_get_hostname(store, memory, 3), -600);
    CHECK_INT(mooncake_store_get_hostname(store, NULL, 300), -600);
}

/* The store is the parent's: its threads are not in the child. */
static void in_a_child(mooncake_store_t store) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        refused(store, -1);
        mooncake_store_destroy(store);
        exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_INT(mooncake_store_health_check(store), 0);
}

int main(int count, char **arguments) {
    CHECK_INT(count, 2);
    refused(NULL, -1);
    refused((mooncake_store_t)memory, -1);
    CHECK_INT(mooncake_store_health_check(NULL), -1);
    mooncake_store_destroy(NULL);
    mooncake_store_t store = mooncake_store_create();
    refused(store, -600);
    bad_setups(store, arguments[1]);
    CHECK_INT(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", 16 << 20, 0, "tcp", NULL, arguments[1]), 0);
    null_pointers(store);
    CHECK_INT(mooncake_store_init_all(store, "tcp", "", 1 << 24), -600);
    in_a_child(store);
    /* Not destroyed: it leaves the pool at exit. */
    puts("store_misuse: ok");
    return 0;
}
