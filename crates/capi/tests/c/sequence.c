/*
 * The sequence of NIXL and TensorRT-LLM: two engines find each other by host and port, one writes into the memory of
 * the other, reads it back, and messages go along.
 */
#include <string.h>
#include <time.h>

#include "check.h"
#include "transfer_engine_c.h"

enum { BLOCK = 65536, BLOCKS = 8, TASKS = 2 * BLOCKS };

static void pause_a_little(void) {
    struct timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, NULL);
}

/* Waits until a task is terminal, and gives its state. */
static int finish(transfer_engine_t engine, batch_id_t batch, size_t task) {
    transfer_status_t status;
    for (;;) {
        CHECK_INT(getTransferStatus(engine, batch, task, &status), 0);
        if (status.status != STATUS_WAITING && status.status != STATUS_PENDING) {
            return status.status;
        }
        pause_a_little();
    }
}

/* Waits for one message. */
static void expect_message(transfer_engine_t engine, const char *name, const char *text) {
    for (int tries = 0; tries < 20000; tries++) {
        int size = -1;
        notify_msg_t *messages = getNotifsFromEngine(engine, &size);
        CHECK(messages != NULL && size >= 0);
        if (size > 0) {
            CHECK_INT(size, 1);
            CHECK(strcmp(messages[0].name, name) == 0);
            CHECK(strcmp(messages[0].msg, text) == 0);
            CHECK_INT(freeNotifsMsgBuf(messages, size), 0);
            return;
        }
        CHECK_INT(freeNotifsMsgBuf(messages, size), 0);
        pause_a_little();
    }
    CHECK(!"a message arrives");
}

static void fill(transfer_request_t *request, int opcode, char *local, segment_id_t segment, char *remote) {
    memset(request, 0, sizeof *request);
    request->opcode = opcode;
    request->source = local;
    request->target_id = segment;
    request->target_offset = (uint64_t)(uintptr_t)remote;
    request->length = BLOCK;
}

int main(void) {
    transfer_engine_t initiator = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    transfer_engine_t target = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    CHECK(initiator != NULL && target != NULL && initiator != target);

    char *local = malloc(TASKS * BLOCK), *remote = malloc(TASKS * BLOCK);
    CHECK(local != NULL && remote != NULL);
    for (int i = 0; i < TASKS * BLOCK; i++) {
        local[i] = (char)(i * 7 + i / 251);
    }
    memset(remote, 0, TASKS * BLOCK);
    CHECK_INT(registerLocalMemory(initiator, local, TASKS * BLOCK, "*", 1), 0);
    CHECK_INT(registerLocalMemory(target, remote, TASKS * BLOCK, "cpu:0", 1), 0);

    char name[64];
    CHECK_INT(getLocalIpAndPort(target, name, sizeof name), 0);
    CHECK(strncmp(name, "127.0.0.1:", 10) == 0);
    segment_id_t segment = openSegment(initiator, name);
    CHECK(segment > 0);
    CHECK_INT(openSegment(initiator, name), segment);
    CHECK_INT(openSegmentNoCache(initiator, name), segment);

    /* One batch of much room, filled by two submissions, as NIXL does. */
    batch_id_t batch = allocateBatchID(initiator, 1024);
    CHECK(batch != INVALID_BATCH && batch != 0);
    transfer_request_t requests[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        fill(&requests[i], OPCODE_WRITE, local + i * BLOCK, segment, remote + i * BLOCK);
    }
    CHECK_INT(submitTransfer(initiator, batch, requests, BLOCKS), 0);
    for (int i = 0; i < BLOCKS; i++) {
        fill(&requests[i], OPCODE_WRITE, local + (BLOCKS + i) * BLOCK, segment, remote + (BLOCKS + i) * BLOCK);
    }
    notify_msg_t message = {"agent", "written"};
    CHECK_INT(submitTransferWithNotify(initiator, batch, requests, BLOCKS, message), 0);
    memset(requests, 0xff, sizeof requests); /* the entries were copied */
    for (size_t i = 0; i < TASKS; i++) {
        CHECK_INT(finish(initiator, batch, i), STATUS_COMPLETED);
    }
    transfer_status_t status;
    CHECK_INT(getTransferStatus(initiator, batch, 0, &status), 0);
    CHECK_INT(status.transferred_bytes, BLOCK);
    CHECK(memcmp(local, remote, TASKS * BLOCK) == 0);
    CHECK_INT(freeBatchID(initiator, batch), 0);
    expect_message(target, "agent", "written");

    /* And back, into memory that is not registered. */
    char *unregistered = calloc(1, BLOCK);
    CHECK(unregistered != NULL);
    batch = allocateBatchID(initiator, 1);
    fill(&requests[0], OPCODE_READ, unregistered, segment, remote + 3 * BLOCK);
    CHECK_INT(submitTransfer(initiator, batch, requests, 1), 0);
    CHECK_INT(finish(initiator, batch, 0), STATUS_COMPLETED);
    CHECK(memcmp(unregistered, local + 3 * BLOCK, BLOCK) == 0);
    CHECK_INT(freeBatchID(initiator, batch), 0);

    message.msg = "by itself";
    CHECK_INT(genNotifyInEngine(initiator, (uint64_t)segment, message), 0);
    expect_message(target, "agent", "by itself");
    CHECK_INT(syncSegmentCache(initiator), 0);

    CHECK_INT(unregisterLocalMemory(initiator, local), 0);
    CHECK_INT(unregisterLocalMemory(target, remote), 0);
    CHECK_INT(closeSegment(initiator, segment), 0);
    destroyTransferEngine(initiator);
    destroyTransferEngine(target);
    free(local);
    free(remote);
    free(unregistered);
    puts("sequence: ok");
    return 0;
}
