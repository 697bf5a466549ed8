// The header in C++, with the layouts that compiled users rely on.
#include <cstddef>
#include <cstdio>
#include <type_traits>

#include "transfer_engine_c.h"

static_assert(sizeof(transfer_request_t) == 40, "request");
static_assert(offsetof(transfer_request_t, target_id) == 16, "request");
static_assert(offsetof(transfer_request_t, target_offset) == 24, "request");
static_assert(sizeof(transfer_status_t) == 16, "status");
static_assert(sizeof(buffer_entry_t) == 16 && sizeof(notify_msg_t) == 16, "pairs");
static_assert(sizeof(nic_load_stat_t) == 80, "load");
static_assert(std::is_same<segment_id_t, int32_t>::value, "segment");
static_assert(std::is_same<batch_id_t, uint64_t>::value, "batch");
static_assert(INVALID_BATCH == UINT64_MAX, "batch");

int main() {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, true);
    if (engine == nullptr || allocateBatchID(engine, 1) == INVALID_BATCH) {
        return 1;
    }
    destroyTransferEngine(engine);
    std::puts("header: ok");
    return 0;
}
