/* Every function with arguments that make no sense: each is answered with an error, and nothing moves. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "transfer_engine_c.h"

static char memory[3][4096];

static void nothing_at_all(transfer_engine_t none) {
    char text[64];
    int size = 7;
    size_t count = 1;
    nic_load_stat_t load;
    transfer_request_t request;
    transfer_status_t status;
    notify_msg_t message = {NULL, NULL};
    buffer_entry_t entry = {memory[0], 4096};
    void *address = memory[0];
    memset(&request, 0, sizeof request);
    destroyTransferEngine(none);
    CHECK_INT(discoverTopology(none), -1);
    CHECK_INT(getLocalIpAndPort(none, text, sizeof text), -1);
    CHECK(installTransport(none, "tcp", NULL) == NULL);
    CHECK_INT(uninstallTransport(none, "tcp"), -1);
    CHECK_INT(openSegment(none, "127.0.0.1:1"), -1);
    CHECK_INT(openSegmentNoCache(none, "127.0.0.1:1"), -1);
    CHECK_INT(closeSegment(none, 0), -1);
    CHECK_INT(removeLocalSegment(none, "127.0.0.1:1"), -1);
    CHECK_INT(warmupEfaSegment(none, "127.0.0.1:1"), -1);
    CHECK_INT(syncSegmentCache(none), -1);
    CHECK_INT(registerLocalMemory(none, memory[0], 4096, "*", 1), -1);
    CHECK_INT(unregisterLocalMemory(none, memory[0]), -1);
    CHECK_INT(registerLocalMemoryBatch(none, &entry, 1, "*"), -1);
    CHECK_INT(unregisterLocalMemoryBatch(none, &address, 1), -1);
    CHECK(allocateBatchID(none, 1) == INVALID_BATCH);
    CHECK_INT(submitTransfer(none, 1, &request, 1), -1);
    CHECK_INT(submitTransferWithNotify(none, 1, &request, 1, message), -1);
    CHECK_INT(getTransferStatus(none, 1, 0, &status), -1);
    CHECK_INT(freeBatchID(none, 1), -1);
    CHECK(getNotifsFromEngine(none, &size) == NULL);
    CHECK_INT(size, 0);
    CHECK_INT(genNotifyInEngine(none, 0, message), -1);
    CHECK_INT(getNicLoadStats(none, &load, &count), -1);
    CHECK_INT(showLinks(none, text, sizeof text, 1), -1);
}

static void bad_memory(transfer_engine_t engine) {
    CHECK_INT(registerLocalMemory(engine, NULL, 4096, "*", 1), -1);
    CHECK_INT(registerLocalMemory(engine, memory[0], 0, "*", 1), -1);
    CHECK_INT(registerLocalMemory(engine, memory[0], SIZE_MAX, "*", 1), -1);
    CHECK_INT(registerLocalMemory(engine, memory[0], 4096, NULL, 1), 0);
    CHECK_INT(registerLocalMemory(engine, memory[0] + 1, 1, "*", 1), -7);
    CHECK_INT(registerLocalMemory(engine, memory[0], 4096, "*", 0), -7);
    buffer_entry_t entries[3] = {{memory[1], 4096}, {memory[2], 4096}, {memory[0] + 4095, 1}};
    CHECK_INT(registerLocalMemoryBatch(engine, entries, 3, "*"), -7);
    CHECK_INT(unregisterLocalMemory(engine, memory[1]), -3);
    CHECK_INT(registerLocalMemoryBatch(engine, NULL, 2, "*"), -1);
    CHECK_INT(registerLocalMemoryBatch(engine, NULL, 0, "*"), 0);
    CHECK_INT(registerLocalMemoryBatch(engine, entries, 2, "*"), 0);
    void *addresses[2] = {memory[1], memory[2]};
    CHECK_INT(unregisterLocalMemoryBatch(engine, addresses, 2), 0);
    CHECK_INT(unregisterLocalMemoryBatch(engine, addresses, 2), -3);
    CHECK_INT(unregisterLocalMemoryBatch(engine, NULL, 2), -1);
    CHECK_INT(unregisterLocalMemory(engine, memory[0] + 1), -3);
    CHECK_INT(unregisterLocalMemory(engine, memory[0]), 0);
    CHECK_INT(unregisterLocalMemory(engine, memory[0]), -3);
}

static void bad_segments(transfer_engine_t engine) {
    const char not_text[] = {(char)0xff, (char)0xfe, 0};
    CHECK(openSegment(engine, NULL) < 0);
    CHECK(openSegment(engine, "") < 0);
    CHECK(openSegment(engine, "///") < 0);
    CHECK(openSegment(engine, not_text) < 0);
    CHECK(openSegment(engine, "no port") < 0);
    CHECK(openSegment(engine, "127.0.0.1:99999") < 0);
    CHECK_INT(openSegment(engine, "127.0.0.1:1"), -102); /* nobody listens there */
    CHECK_INT(closeSegment(engine, 77), -1);
    CHECK_INT(closeSegment(engine, -1), -1);
    CHECK_INT(removeLocalSegment(engine, "127.0.0.1:1"), -1);
    CHECK(installTransport(engine, NULL, NULL) == NULL);
    CHECK(installTransport(engine, "pigeon", NULL) == NULL);
    CHECK(installTransport(engine, "tcp", NULL) != NULL);
    CHECK_INT(uninstallTransport(engine, "pigeon"), -8);
    CHECK_INT(uninstallTransport(engine, "tcp"), 0);
    notify_msg_t message = {NULL, NULL};
    CHECK_INT(genNotifyInEngine(engine, 77, message), -1);
}

static void bad_batches(transfer_engine_t engine) {
    transfer_request_t request;
    transfer_status_t status = {55, 66};
    memset(&request, 0, sizeof request);
    request.source = memory[0];
    request.length = 16;
    batch_id_t batch = allocateBatchID(engine, 2);
    CHECK(batch != INVALID_BATCH);
    CHECK_INT(submitTransfer(engine, batch, NULL, 1), -1);
    CHECK_INT(submitTransfer(engine, batch, NULL, 0), 0);
    CHECK_INT(submitTransfer(engine, batch, &request, SIZE_MAX), -1);
    request.opcode = 5;
    CHECK_INT(submitTransfer(engine, batch, &request, 1), -1);
    request.opcode = OPCODE_READ;
    request.target_id = 99;
    CHECK_INT(submitTransfer(engine, batch, &request, 1), -1);
    request.target_id = -1;
    CHECK_INT(submitTransfer(engine, batch, &request, 1), -1);
    request.target_id = LOCAL_SEGMENT;
    request.source = NULL;
    CHECK_INT(submitTransfer(engine, batch, &request, 1), -1);
    request.source = memory[0];
    transfer_request_t three[3] = {request, request, request};
    CHECK_INT(submitTransfer(engine, batch, three, 3), -2);
    CHECK_INT(getTransferStatus(engine, batch, 0, &status), -1); /* nothing was submitted */
    CHECK_INT(status.status, 55);

    /* Nothing is registered, so there is nothing to read. */
    CHECK_INT(submitTransfer(engine, batch, &request, 1), 0);
    do {
        CHECK_INT(getTransferStatus(engine, batch, 0, &status), 0);
    } while (status.status == STATUS_WAITING);
    CHECK_INT(status.status, STATUS_FAILED);
    CHECK_INT(getTransferStatus(engine, batch, 1, &status), -1);
    CHECK_INT(getTransferStatus(engine, batch, 0, NULL), -1);
    request.length = 0;
    CHECK_INT(submitTransfer(engine, batch, &request, 1), 0);
    CHECK_INT(getTransferStatus(engine, batch, 1, &status), 0);
    CHECK_INT(status.status, STATUS_COMPLETED); /* no bytes: done at once */
    CHECK_INT(submitTransfer(engine, batch, &request, 1), -2);
    CHECK_INT(freeBatchID(engine, batch), 0);
    CHECK_INT(freeBatchID(engine, batch), -1);
    CHECK_INT(getTransferStatus(engine, batch, 0, &status), -1);
    CHECK_INT(submitTransfer(engine, batch, &request, 1), -1);
    CHECK_INT(freeBatchID(engine, INVALID_BATCH), -1);
    CHECK_INT(freeBatchID(engine, 0), -1);
    CHECK_INT(getTransferStatus(engine, INVALID_BATCH, 0, &status), -1);
}

static void bad_buffers(transfer_engine_t engine) {
    char text[4096];
    size_t count = 1;
    nic_load_stat_t load;
    CHECK_INT(getLocalIpAndPort(engine, NULL, 64), -1);
    strcpy(text, "same");
    CHECK_INT(getLocalIpAndPort(engine, text, 5), -1);
    CHECK(strcmp(text, "same") == 0);
    CHECK_INT(getLocalIpAndPort(engine, text, 0), -1);
    CHECK_INT(showLinks(engine, text, 3, 1), -1);
    CHECK_INT(showLinks(engine, NULL, 4096, 1), -1);
    CHECK_INT(showLinks(engine, text, sizeof text, 1), 0);
    CHECK(strstr(text, "\"local_nics\"") != NULL && strstr(text, "\"topology\"") != NULL);
    CHECK_INT(showLinks(engine, text, sizeof text, 0), 0);
    CHECK(strstr(text, "Local NICs") != NULL);
    CHECK_INT(getNicLoadStats(engine, &load, NULL), -1);
    CHECK_INT(getNicLoadStats(engine, NULL, &count), 0);
    CHECK_INT(getNicLoadStats(engine, &load, &count), 0);
    CHECK(getNotifsFromEngine(engine, NULL) == NULL);
    CHECK_INT(freeNotifsMsgBuf(NULL, 3), 0);
    CHECK_INT(discoverTopology(engine), 0);
}

/* A forked child has none of the engine's threads, and only a copy of its memory. */
static void in_a_forked_child(transfer_engine_t engine) {
    char name[128];
    int filled[2];
    CHECK_INT(getLocalIpAndPort(engine, name, sizeof name), 0);
    memset(memory[0], 'a', 4096);
    CHECK_INT(registerLocalMemory(engine, memory[0], 4096, "*", 1), 0);
    CHECK_INT(pipe(filled), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        alarm(30); /* what waits for threads that are not there waits for ever */
        nothing_at_all(engine);
        transfer_engine_t own = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);
        CHECK(own != NULL);
        CHECK_INT(registerLocalMemory(own, memory[1], 4096, "*", 1), 0);
        transfer_request_t request;
        memset(&request, 0, sizeof request);
        request.opcode = OPCODE_READ;
        request.source = memory[1];
        request.target_id = openSegment(own, name);
        CHECK(request.target_id >= 0);
        request.target_offset = (uintptr_t)memory[0];
        request.length = 4096;
        CHECK_INT(read(filled[0], &byte, 1), 1);
        batch_id_t batch = allocateBatchID(own, 1);
        CHECK_INT(submitTransfer(own, batch, &request, 1), 0);
        transfer_status_t status;
        do {
            CHECK_INT(getTransferStatus(own, batch, 0, &status), 0);
        } while (status.status == STATUS_WAITING);
        CHECK_INT(status.status, STATUS_COMPLETED);
        CHECK(memory[1][0] == 'b' && memory[1][4095] == 'b'); /* the parent's bytes, not the copy's */
        exit(0); /* the handlers of the parent's engines run here too */
    }
    memset(memory[0], 'b', 4096);
    CHECK_INT(write(filled[1], "x", 1), 1);
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_INT(unregisterLocalMemory(engine, memory[0]), 0);
}

int main(void) {
    CHECK(createTransferEngine(NULL, "127.0.0.1", "", 0, 1) == NULL);
    CHECK(createTransferEngine("P2PHANDSHAKE", NULL, NULL, 0, 1) == NULL);
    CHECK(createTransferEngine("P2PHANDSHAKE", "", "", 0, 1) == NULL);
    CHECK(createTransferEngine("P2PHANDSHAKE", "0.0.0.0", "", 0, 1) == NULL);
    CHECK(createTransferEngine("P2PHANDSHAKE", "two words", "", 0, 1) == NULL);
    CHECK(createTransferEngine("gopher://127.0.0.1:70", "name", "", 0, 1) == NULL);
    nothing_at_all(NULL);
    nothing_at_all((transfer_engine_t)(uintptr_t)0x1234);

    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);
    CHECK(engine != NULL);
    enableGracefulShutdown(engine);
    enableGracefulShutdown(engine);
    bad_memory(engine);
    bad_segments(engine);
    bad_batches(engine);
    bad_buffers(engine);
    in_a_forked_child(engine);
    batch_id_t open = allocateBatchID(engine, 4);
    CHECK(open != INVALID_BATCH);
    destroyTransferEngine(engine);
    destroyTransferEngine(engine);
    nothing_at_all(engine);
    CHECK_INT(freeBatchID(engine, open), -1);

    transfer_engine_t another = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    CHECK(another != NULL && another != engine);
    nothing_at_all(engine);
    CHECK_INT(freeBatchID(another, open), -1); /* a batch of another engine */
    puts("misuse: ok");
    return 0; /* the engine that is left ends at exit */
}
