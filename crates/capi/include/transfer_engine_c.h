/*
 * The C API of the Transfer Engine.
 *
 * An engine moves bytes between memory of this process and memory that other processes have registered. Names, types
 * and layouts are those that Mooncake's C users compile against; link with -ltransfer_engine.
 *
 * Rules
 * - Functions with an int result answer 0, or a negative code: -1 bad argument (also a null pointer, a handle that was
 *   destroyed, a batch that was freed), -2 no room in the batch, -3 address not registered, -4 still in use,
 *   -6 no such device, -7 range overlaps a registered one, -8 no such transport, -102 the peer does not answer,
 *   -200 metadata store, -302 no memory. A call that fails has moved nothing and changed nothing.
 * - Text goes in as NUL-terminated UTF-8 and is not kept. Memory to move is the caller's: it must stay mapped until it
 *   was unregistered, or until the task that uses it is terminal.
 * - All functions may be called from any thread.
 */
#ifndef TRANSFER_ENGINE_C_H
#define TRANSFER_ENGINE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. They are no addresses: using one that was destroyed is an error, not a crash. */
typedef void *transfer_engine_t;
typedef void *transport_t;

/* Number of an open segment; 0 is the engine's own. */
typedef int32_t segment_id_t;
#define LOCAL_SEGMENT (0)

/* Number of a batch. */
typedef uint64_t batch_id_t;
#define INVALID_BATCH UINT64_MAX

/* Directions, seen from the caller. */
#define OPCODE_READ (0)
#define OPCODE_WRITE (1)

struct transfer_request {
    int opcode;
    void *source;           /* our memory; it need not be registered where no device is involved */
    segment_id_t target_id;
    uint64_t target_offset; /* address in the process that owns the segment */
    uint64_t length;
};
typedef struct transfer_request transfer_request_t;

/* Where a task stands. Only WAITING and PENDING are not terminal; nothing of a terminal task is in flight. */
#define STATUS_WAITING (0)
#define STATUS_PENDING (1)
#define STATUS_INVALID (2)
#define STATUS_CANCELED (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT (5)
#define STATUS_FAILED (6)

struct transfer_status {
    int status;
    uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

struct buffer_entry {
    void *addr;
    size_t length;
};
typedef struct buffer_entry buffer_entry_t;

struct notify_msg {
    char *name;
    char *msg;
};
typedef struct notify_msg notify_msg_t;

struct nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps;
};
typedef struct nic_load_stat nic_load_stat_t;

/*
 * Starts an engine; NULL on failure, with the reason on standard error.
 * metadata_conn_string: "P2PHANDSHAKE", or the URL of a metadata store. local_server_name: with P2PHANDSHAKE the host
 * that peers connect to, else the name of the segment. ip_or_host_name and rpc_port are there for compatibility.
 * auto_discover: whether to look for RDMA devices.
 */
transfer_engine_t createTransferEngine(const char *metadata_conn_string, const char *local_server_name,
                                       const char *ip_or_host_name, uint64_t rpc_port, int auto_discover);

/* Stops the engine: new calls fail, what is in flight ends first. Twice does no harm. */
void destroyTransferEngine(transfer_engine_t engine);

/* Lets the engine stop cleanly on SIGTERM, SIGINT and at exit; the process then ends with 128 + signal. */
void enableGracefulShutdown(transfer_engine_t engine);

int discoverTopology(transfer_engine_t engine);

/* Writes "host:port", which peers open, with its NUL. -1 when it does not fit. */
int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/* NULL when there is no such transport here ("tcp", "rdma"). */
transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);
int uninstallTransport(transfer_engine_t engine, const char *proto);

/* Number of the segment of that name, or a negative code. The same name has the same number. */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);
/* As above, and what the owner has registered is asked for again. */
segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
int removeLocalSegment(transfer_engine_t engine, const char *segment_name);
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);
/* Asks the owners of all open segments again. */
int syncSegmentCache(transfer_engine_t engine);

/* location: "cpu:0", "cuda:1", or "*". */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
                        int remote_accessible);
int unregisterLocalMemory(transfer_engine_t engine, void *addr);
/* All of them or none. */
int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list, size_t buffer_len,
                             const char *location);
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len);

/* A batch with room for so many tasks; INVALID_BATCH on failure. */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
/* Adds tasks to the batch and starts them, or starts none. The entries are copied. */
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries, size_t count);
/* The message is left with the owner of the first entry's segment when the whole batch has completed. */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
                             size_t count, notify_msg_t notify_msg);
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id, struct transfer_status *status);
/* -4 while a task is not terminal. */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* Messages that peers have left; the array and its texts are the caller's, see freeNotifsMsgBuf. */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);
int freeNotifsMsgBuf(notify_msg_t *msg, int size);
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

/* count: room in stats on entry, number of devices on return. */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count);
/* Writes what is known of the local devices, as text or as JSON, with its NUL. -1 when it does not fit. */
int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len, int json);

#ifdef __cplusplus
}
#endif

#endif /* TRANSFER_ENGINE_C_H */
