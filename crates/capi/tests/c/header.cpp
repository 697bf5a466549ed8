// The headers in C++, with the layouts that compiled users rely on.
#include <cstddef>
#include <cstdio>
#include <type_traits>

#include "store_c.h"
#include "transfer_engine_c.h"

static_assert(sizeof(transfer_request_t) == 40, "request");
static_assert(offsetof(transfer_request_t, target_id) == 16, "request");
static_assert(offsetof(transfer_request_t, target_offset) == 24, "request");
static_assert(sizeof(transfer_status_t) == 16, "status");
static_assert(sizeof(buffer_entry_t) == 16 && sizeof(notify_msg_t) == 16, "pairs");
static_assert(sizeof(nic_load_stat_t) == 80, "load");
static_assert(std::is_same<segment_id_t, int32_t>::value, "segment");
static_assert(std::is_same<batch_id_t, uint64_t>::value, "batch");
static_assert(sizeof(mooncake_replicate_config_t) == 32, "config");
static_assert(offsetof(mooncake_replicate_config_t, preferred_segments) == 16, "config");
static_assert(INVALID_BATCH == UINT64_MAX, "batch");

int main() {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, true);
    if (engine == nullptr || allocateBatchID(engine, 1) == INVALID_BATCH) {
        return 1;
    }
    mooncake_store_t store = mooncake_store_create();
    if (mooncake_store_is_exist(store, "key") != -600) {
        return 1;
    }
    mooncake_store_destroy(store);
    destroyTransferEngine(engine);
    std::puts("header: ok");
    return 0;
}
