/* Stands before the C library's functions: lets call number FAULT_NUMBER of FAULT_CALL
 * fail, and says at the end how many there were. Programs that are started know nothing
 * of it. Calls are counted from `main` on. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
static long count, number;
static int error;
static char call[64], report[512], root[512];
static void from_environment(char *to, size_t len, const char *name) {
    const char *text = getenv(name);
    snprintf(to, len, "%s", text ? text : "");
    unsetenv(name);
}
/* Lets the kernel refuse every renaming: some libraries call it without the C library. */
static void refuse_renaming(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_rename
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rename, 3, 0),
#else
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 3, 0),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
    };
    struct sock_fprog filter = { sizeof program / sizeof *program, program };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        abort();
}
__attribute__((constructor)) static void begin(void) {
    char text[32];
    from_environment(call, sizeof call, "FAULT_CALL");
    from_environment(report, sizeof report, "FAULT_REPORT");
    from_environment(text, sizeof text, "FAULT_NUMBER");
    number = atol(text);
    from_environment(text, sizeof text, "FAULT_ERROR");
    error = atoi(text);
    from_environment(root, sizeof root, "FAULT_ROOT");
    unsetenv("LD_PRELOAD");
    if (!strcmp(call, "every rename") && number) refuse_renaming();
}
__attribute__((destructor)) static void end(void) {
    char text[32];
    int len = snprintf(text, sizeof text, "%ld", __atomic_load_n(&count, __ATOMIC_RELAXED));
    int file = (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file >= 0) syscall(SYS_write, file, text, len);
}
static int fails(const char *name) {
    if (strcmp(name, call)) return 0;
    if (__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) != number) return 0;
    errno = error;
    return 1;
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
static int regular(int file) {
    struct stat about;
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode);
}
static int is_there(const char *path) { return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0; }
/* What stands under FAULT_ROOT is in place of the system's own. */
static const char *place(const char *path, char *under) {
    if (!path || !*root || *path != '/') return path;
    snprintf(under, 1024, "%s%s", root, path);
    return is_there(under) ? under : path;
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    char under[1024];
    path = place(path, under);
    return fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
ssize_t write(int file, const void *from, size_t len) {
    if (regular(file) ? fails("write") : file > 2 && fails("write_pipe")) return -1;
    return syscall(SYS_write, file, from, len);
}
ssize_t read(int file, void *to, size_t len) {
    return fails("read") ? -1 : syscall(SYS_read, file, to, len);
}
DIR *opendir(const char *path) {
    char under[1024];
    return fails("opendir") ? NULL : NEXT(opendir)(place(path, under));
}
int statx(int at, const char *path, int flags, unsigned mask, struct statx *about) {
    char under[1024];
    return NEXT(statx)(at, place(path, under), flags, mask, about);
}
int rename(const char *from, const char *to) { return fails("rename") ? -1 : NEXT(rename)(from, to); }
int renameat2(int in, const char *from, int at, const char *to, unsigned how) {
    return fails("rename") ? -1 : (int)syscall(SYS_renameat2, in, from, at, to, how);
}
int unlink(const char *path) { return fails("unlink") ? -1 : NEXT(unlink)(path); }
int ftruncate64(int file, off64_t len) { return fails("ftruncate") ? -1 : NEXT(ftruncate64)(file, len); }
int fsync(int file) { return fails("fsync") ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return fails("fdatasync") ? -1 : NEXT(fdatasync)(file); }
int pipe2(int *files, int flags) { return fails("pipe") ? -1 : NEXT(pipe2)(files, flags); }
int symlink(const char *to, const char *at) { return fails("symlink") ? -1 : NEXT(symlink)(to, at); }
/* An instance of tracefs comes with its files: the one that was prepared. */
static int move_instance(const char *path, int is_made) {
    char prepared[1024], under[1024];
    snprintf(prepared, sizeof prepared, "%s/instance", root);
    snprintf(under, sizeof under, "%s%s", root, path);
    return (int)syscall(SYS_renameat2, AT_FDCWD, is_made ? prepared : under, AT_FDCWD, is_made ? under : prepared, 0);
}
int mkdir(const char *path, mode_t mode) {
    if (fails("mkdir")) return -1;
    return *root && strstr(path, "/instances/") ? move_instance(path, 1) : NEXT(mkdir)(path, mode);
}
int rmdir(const char *path) {
    if (fails("rmdir")) return -1;
    return *root && strstr(path, "/instances/") ? move_instance(path, 0) : NEXT(rmdir)(path);
}
int flock(int file, int what) { return fails("flock") ? -1 : NEXT(flock)(file, what); }
int poll(struct pollfd *files, nfds_t count, int ms) { return fails("poll") ? -1 : NEXT(poll)(files, count, ms); }
int waitid(idtype_t type, id_t id, siginfo_t *info, int what) {
    return fails("waitid") ? -1 : NEXT(waitid)(type, id, info, what);
}
pid_t waitpid(pid_t pid, int *status, int what) { return fails("waitpid") ? -1 : NEXT(waitpid)(pid, status, what); }
long ptrace(enum __ptrace_request request, ...) {
    va_list rest;
    va_start(rest, request);
    long pid = va_arg(rest, long);
    void *at = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    // A continuation that fails stands for a process that was killed.
    int seizes = (int)request == PTRACE_SEIZE;
    return (seizes && fails("ptrace")) ? -1 : syscall(SYS_ptrace, request, pid, at, data);
}
int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const *args, char *const *env) {
    if (fails("spawn")) return error;
    return NEXT(posix_spawnp)(pid, file, actions, attributes, args, env);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    if (fails("thread")) return error;
    return NEXT(pthread_create)(thread, attributes, run, with);
}
int fcntl64(int file, int what, ...) {
    va_list rest;
    va_start(rest, what);
    long with = va_arg(rest, long);
    va_end(rest);
    return fails("fcntl") ? -1 : (int)syscall(SYS_fcntl, file, what, with);
}
int fcntl(int file, int what, ...) {
    va_list rest;
    va_start(rest, what);
    long with = va_arg(rest, long);
    va_end(rest);
    return fails("fcntl") ? -1 : (int)syscall(SYS_fcntl, file, what, with);
}
