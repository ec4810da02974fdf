/* Fails, shortens or delays file operations of a process and its children (LD_PRELOAD).

   SHIM_CALLS    two 64-bit counters in a file that all processes map: matching calls, faults
   SHIM_KIND     open write pwrite fsync rename link mkdir unlink ftruncate, or "any" of these; stat list, or "look"
   SHIM_BELOW    only paths that begin with this and contain SHIM_PART
   SHIM_FIRST    number of the first matching call that gets a fault, from 1
   SHIM_COUNT    how many matching calls in a row get it
   SHIM_EVERY    instead of a row: every so many-th call from the first on
   SHIM_WHILE    a file: calls get faults only while it is there
   SHIM_ERRNO    the error; SHIM_SHORT=1 writes a part instead; SHIM_DELAY_MS delays it, and it succeeds
   SHIM_LOG      a file: one line for each matching call */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static long *counters;
static __thread int inside;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static void map(void) {
    const char *path = getenv("SHIM_CALLS");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, 2 * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) counters = found;
}

static void note(const char *kind, const char *path, long call, int fault) {
    const char *log = getenv("SHIM_LOG");
    char line[PATH_MAX + 64];
    int file = log ? open(log, O_WRONLY | O_APPEND) : -1;
    if (file < 0) return;
    REAL(ssize_t, "write", int, const void *, size_t);
    int length = snprintf(line, sizeof line, "%ld %s %s %d\n", call, kind, path, fault);
    if (real(file, line, length) < 0) abort();
    close(file);
}

/* The error that a call gets: 0 none, -1 a short write. */
static int judge(const char *kind, const char *path) {
    const char *below = getenv("SHIM_BELOW"), *part = getenv("SHIM_PART"), *wanted = getenv("SHIM_KIND");
    const char *while_ = getenv("SHIM_WHILE");
    struct stat there;
    if (inside || !below || !path || strncmp(path, below, strlen(below)) || (part && !strstr(path, part))) return 0;
    int looks = !strcmp(kind, "stat") || !strcmp(kind, "list");
    if (wanted && strcmp(wanted, looks ? "look" : "any") && strcmp(wanted, kind)) return 0;
    int saved = errno, fault = 0;
    inside = 1;
    if (!counters) map();
    long call = counters ? __atomic_add_fetch(counters, 1, __ATOMIC_SEQ_CST) : 0;
    long first = number("SHIM_FIRST", 0);
    long every = number("SHIM_EVERY", 0), after = call - first;
    int due = first && after >= 0 && (every ? after % every == 0 : after < number("SHIM_COUNT", 1));
    if (while_ ? stat(while_, &there) == 0 : due)
        fault = number("SHIM_SHORT", 0) ? -1 : (int)number("SHIM_ERRNO", 0);
    if (fault && counters) __atomic_add_fetch(counters + 1, 1, __ATOMIC_SEQ_CST);
    note(kind, path, call, fault);
    long delay = fault ? number("SHIM_DELAY_MS", 0) : 0;
    if (delay) {
        struct timespec span = {delay / 1000, delay % 1000 * 1000000};
        nanosleep(&span, NULL);
        fault = 0;
    }
    inside = 0;
    errno = saved;
    return fault;
}

static int judge_file(const char *kind, int file) {
    char link[64], path[PATH_MAX + 1];
    if (inside || !getenv("SHIM_BELOW")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length <= 0) return 0;
    path[length] = 0;
    return judge(kind, path);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        int fault = judge("open", path); \
        if (fault > 0) { errno = fault; return -1; } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        int fault = judge("open", path); \
        if (fault > 0) { errno = fault; return -1; } \
        return real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    int fault = judge_file("write", file);
    if (fault > 0) { errno = fault; return -1; }
    return real(file, data, fault < 0 && size > 1 ? size / 2 : size);
}

#define PWRITE(name, offset_t) \
    ssize_t name(int file, const void *data, size_t size, offset_t offset) { \
        REAL(ssize_t, #name, int, const void *, size_t, offset_t); \
        int fault = judge_file("pwrite", file); \
        if (fault > 0) { errno = fault; return -1; } \
        return real(file, data, fault < 0 && size > 1 ? size / 2 : size, offset); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define ON_FILE(name, kind, declared, given, ...) \
    int name declared { \
        REAL(int, #name, __VA_ARGS__); \
        int fault = judge_file(kind, file); \
        if (fault > 0) { errno = fault; return -1; } \
        return real given; \
    }
ON_FILE(fsync, "fsync", (int file), (file), int)
ON_FILE(fdatasync, "fsync", (int file), (file), int)
ON_FILE(ftruncate, "ftruncate", (int file, off_t size), (file, size), int, off_t)
ON_FILE(ftruncate64, "ftruncate", (int file, off64_t size), (file, size), int, off64_t)

#define ON_PATH(name, kind, declared, given, ...) \
    int name declared { \
        REAL(int, #name, __VA_ARGS__); \
        int fault = judge(kind, path); \
        if (fault > 0) { errno = fault; return -1; } \
        return real given; \
    }
#define STAT(name, type) \
    ON_PATH(name, "stat", (const char *path, type *facts), (path, facts), const char *, type *)
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)
#define STATAT(name, type) \
    ON_PATH(name, "stat", (int folder, const char *path, type *facts, int flags), (folder, path, facts, flags), \
            int, const char *, type *, int)
STATAT(fstatat, struct stat)
STATAT(fstatat64, struct stat64)
ON_PATH(rename, "rename", (const char *path, const char *to), (path, to), const char *, const char *)
ON_PATH(link, "link", (const char *path, const char *to), (path, to), const char *, const char *)
ON_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode), const char *, mode_t)
ON_PATH(unlink, "unlink", (const char *path), (path), const char *)
ON_PATH(unlinkat, "unlink", (int folder, const char *path, int flags), (folder, path, flags), int, const char *, int)
ON_PATH(linkat, "link", (int a, const char *path, int b, const char *to, int flags), (a, path, b, to, flags),
        int, const char *, int, const char *, int)
ON_PATH(renameat, "rename", (int a, const char *path, int b, const char *to), (a, path, b, to),
        int, const char *, int, const char *)

DIR *opendir(const char *path) {
    REAL(DIR *, "opendir", const char *);
    int fault = judge("list", path);
    if (fault > 0) { errno = fault; return NULL; }
    return real(path);
}
