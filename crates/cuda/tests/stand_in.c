/* A stand-in for the CUDA driver, for machines without a GPU. Two GPUs. Memory of theirs is a range of addresses that
 * nothing may touch (PROT_NONE), with its bytes in a file beside it: who reads or writes it by the CPU is killed. Copies run
 * when their stream is waited for, not before. Calls that need a current context fail without one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { GPUS = 2, RANGES = 1024, DEPTH = 16, COPIES = 4096, PATH = 48 };

struct range { uint64_t at; size_t size; char *bytes; int gpu, fd, imported; char path[PATH]; };
struct copy { uint64_t to, from; size_t size; };
struct stream { struct copy copies[COPIES]; int count; };
struct handle { char path[PATH]; size_t size; char rest[64 - PATH - sizeof(size_t)]; };

static struct range ranges[RANGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread uintptr_t stack[DEPTH];
static __thread int depth;
static int made;

static struct range *find(uint64_t at) {
  for (int i = 0; i < RANGES; i++)
    if (ranges[i].size && at >= ranges[i].at && at < ranges[i].at + ranges[i].size) return &ranges[i];
  return NULL;
}

static struct range *room(void) {
  for (int i = 0; i < RANGES; i++)
    if (!ranges[i].size) return &ranges[i];
  return NULL;
}

static int gpu(void) { return depth ? (int)stack[depth - 1] - 1 : -1; }

/* Reserves addresses for the bytes of an open file. */
static int place(struct range *r, int fd, size_t size, int imported) {
  void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED || at == MAP_FAILED) return OUT_OF_MEMORY;
  r->at = (uint64_t)at, r->bytes = bytes, r->gpu = gpu(), r->fd = fd, r->imported = imported, r->size = size;
  return OK;
}

static int drop(uint64_t at) {
  if (gpu() < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  struct range *r = find(at);
  if (r) {
    munmap((void *)r->at, r->size);
    munmap(r->bytes, r->size);
    close(r->fd);
    if (!r->imported) unlink(r->path);
    r->size = 0;
  }
  pthread_mutex_unlock(&lock);
  return r ? OK : INVALID_VALUE;
}

__attribute__((destructor)) static void end(void) {
  for (int i = 0; i < RANGES; i++)
    if (ranges[i].size && !ranges[i].imported) unlink(ranges[i].path);
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDriverGetVersion(int *version) { return *version = 12040, OK; }
int cuDeviceGetCount(int *count) { return *count = GPUS, OK; }
int cuDeviceGet(int *device, int ordinal) {
  if (ordinal < 0 || ordinal >= GPUS) return INVALID_VALUE;
  return *device = ordinal, OK;
}
int cuDeviceGetName(char *name, int length, int device) {
  return snprintf(name, (size_t)length, "Stand-in GPU %d", device), OK;
}
int cuDeviceGetPCIBusId(char *id, int length, int device) {
  return snprintf(id, (size_t)length, "0000:3B:0%d.0", device), OK;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = (size_t)1 << 34, OK; }
int cuGetErrorName(int code, const char **name) {
  *name = code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : NULL;
  return *name ? OK : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(uintptr_t)(device + 1), OK; }
int cuCtxPushCurrent_v2(void *context) {
  if (!context || depth == DEPTH) return INVALID_CONTEXT;
  return stack[depth++] = (uintptr_t)context, OK;
}
int cuCtxPopCurrent_v2(void **context) {
  if (!depth) return INVALID_CONTEXT;
  return *context = (void *)stack[--depth], OK;
}

int cuPointerGetAttribute(void *value, int which, uint64_t at) {
  pthread_mutex_lock(&lock);
  struct range *r = find(at);
  int found = r != NULL, where = found ? r->gpu : 0;
  pthread_mutex_unlock(&lock);
  if (!found || (which != 2 && which != 8 && which != 9)) return INVALID_VALUE;
  *(int *)value = which == 2 ? 2 : which == 8 ? 0 : where;
  return OK;
}

int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t at) {
  if (gpu() < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  struct range *r = find(at);
  if (r) *base = r->at, *size = r->size;
  pthread_mutex_unlock(&lock);
  return r ? OK : INVALID_VALUE;
}

int cuMemAlloc_v2(uint64_t *at, size_t size) {
  if (gpu() < 0) return INVALID_CONTEXT;
  if (!size || size > (size_t)1 << 34) return OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  int status = OUT_OF_MEMORY;
  struct range *r = room();
  if (r) {
    snprintf(r->path, sizeof r->path, "/dev/shm/yb-stand-in-%d-%d", getpid(), made++);
    int fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && !ftruncate(fd, (off_t)size)) status = place(r, fd, size, 0);
    if (!status) *at = r->at;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

int cuMemFree_v2(uint64_t at) { return drop(at); }

int cuMemHostRegister_v2(void *at, size_t size, unsigned flags) {
  return (void)flags, gpu() < 0 ? INVALID_CONTEXT : at && size ? OK : INVALID_VALUE;
}
int cuMemHostUnregister(void *at) { return gpu() < 0 ? INVALID_CONTEXT : at ? OK : INVALID_VALUE; }

int cuStreamCreate(void **stream, unsigned flags) {
  if (gpu() < 0) return INVALID_CONTEXT;
  (void)flags;
  *stream = calloc(1, sizeof(struct stream));
  return *stream ? OK : OUT_OF_MEMORY;
}
int cuStreamDestroy_v2(void *stream) { return free(stream), OK; }

static char *resolve(uint64_t at, size_t size) {
  struct range *r = find(at);
  if (!r) return (char *)at;
  return at + size <= r->at + r->size ? r->bytes + (at - r->at) : NULL;
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, void *stream) {
  if (gpu() < 0) return INVALID_CONTEXT;
  struct stream *s = stream;
  pthread_mutex_lock(&lock);
  int fits = s && s->count < COPIES && resolve(to, size) && resolve(from, size);
  pthread_mutex_unlock(&lock);
  if (!fits) return INVALID_VALUE;
  s->copies[s->count++] = (struct copy){to, from, size};
  return OK;
}

int cuStreamSynchronize(void *stream) {
  if (gpu() < 0) return INVALID_CONTEXT;
  struct stream *s = stream;
  for (int i = 0; s && i < s->count; i++) {
    pthread_mutex_lock(&lock);
    char *to = resolve(s->copies[i].to, s->copies[i].size), *from = resolve(s->copies[i].from, s->copies[i].size);
    pthread_mutex_unlock(&lock);
    if (to && from) memmove(to, from, s->copies[i].size);
  }
  if (s) s->count = 0;
  return OK;
}

int cuIpcGetMemHandle(struct handle *handle, uint64_t at) {
  if (gpu() < 0) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  struct range *r = find(at);
  int fits = r && r->at == at && !r->imported;
  if (fits) {
    memset(handle, 0, sizeof *handle);
    memcpy(handle->path, r->path, PATH);
    handle->size = r->size;
  }
  pthread_mutex_unlock(&lock);
  return fits ? OK : INVALID_VALUE;
}

int cuIpcOpenMemHandle_v2(uint64_t *at, struct handle handle, unsigned flags) {
  if (gpu() < 0) return INVALID_CONTEXT;
  char own[PATH];
  snprintf(own, sizeof own, "/dev/shm/yb-stand-in-%d-", getpid());
  handle.path[PATH - 1] = 0;
  if (flags != 1 || !strncmp(handle.path, own, strlen(own)) || strncmp(handle.path, own, 21)) return INVALID_HANDLE;
  int fd = open(handle.path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  struct range *r = room();
  int status = r ? place(r, fd, handle.size, 1) : OUT_OF_MEMORY;
  if (!status) *at = r->at;
  pthread_mutex_unlock(&lock);
  return status;
}

int cuIpcCloseMemHandle(uint64_t at) { return drop(at); }

int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  if (stream && ((struct stream *)stream)->count) cuStreamSynchronize(stream);
  return function(argument), OK;
}

int cuMemGetHandleForAddressRange(void *handle, uint64_t at, size_t size, int kind, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  struct range *r = find(at);
  int fits = r && kind == 1 && !flags && at % 4096 == 0 && size % 4096 == 0 && at + size <= r->at + r->size;
  if (fits) *(int *)handle = fcntl(r->fd, F_DUPFD_CLOEXEC, 3);
  pthread_mutex_unlock(&lock);
  return fits ? OK : INVALID_VALUE;
}
