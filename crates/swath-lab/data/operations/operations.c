/* What a kernel is asked for by tests of its parts, after the descriptions of AIM9's: one test, so often
 * as is said, in the current directory.
 *
 * operations TEST COUNT; prints how many operations a second there were. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KIB = 1024, PAGE = 4096, MEG = 1 << 20, MESSAGE = 512, FILE_KIB = 2048 };

static char buffer[PAGE];
static unsigned state = 1;

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static unsigned below(unsigned n) {
    state = state * 1103515245 + 12345;
    return (state >> 8) % n;
}

/* Makes a file and closes it. */
static void creat_clo(long count) {
    while (count-- > 0) {
        int file = creat("made", 0600);
        must(file >= 0, "creat");
        close(file);
    }
}

/* Memory grows by a mebibyte, and shrinks in pieces of 16 pages; each is an operation. With `touch` each page is
 * written first, and is one. */
static void grow(long count, int touch) {
    while (count > 0) {
        char *from = sbrk(MEG);
        must(from != (char *)-1, "sbrk");
        for (char *at = from; touch && at < from + MEG; at += PAGE) {
            *(volatile char *)at = 1;
            count--;
        }
        for (char *to = from + MEG - 16 * PAGE; to >= from; to -= 16 * PAGE) {
            must(!brk(to), "brk");
            count -= !touch;
        }
    }
}

static void brk_test(long count) { grow(count, 0); }
static void page_test(long count) { grow(count, 1); }

static void child(char **args) {
    int status;
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        if (args)
            execv("/proc/self/exe", args);
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid && status == 0, "waitpid");
}

static void fork_test(long count) {
    while (count-- > 0)
        child(NULL);
}

static void exec_test(long count) {
    char *args[] = { "operations", NULL };
    while (count-- > 0)
        child(args);
}

static void link_test(long count) {
    close(creat("made", 0600));
    while (count-- > 0)
        must(!link("made", "linked") && !unlink("linked"), "link");
}

static int filled(void) {
    int file = open("made", O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(file >= 0, "open");
    for (int n = 0; n < FILE_KIB; n++)
        must(write(file, buffer, KIB) == KIB, "write");
    return file;
}

/* A KiB each, at random places of a file, or one after the other into new ones. */
static void disk_rr(long count) {
    int file = filled();
    while (count-- > 0)
        must(pread(file, buffer, KIB, below(FILE_KIB) * (off_t)KIB) == KIB, "pread");
}

static void disk_rw(long count) {
    int file = filled();
    while (count-- > 0)
        must(pwrite(file, buffer, KIB, below(FILE_KIB) * (off_t)KIB) == KIB, "pwrite");
}

static void disk_wrt(long count) {
    for (; count > 0; count -= FILE_KIB)
        close(filled());
}

/* Looks for names in directories. */
static void disk_src(long count) {
    char path[64];
    struct stat about;
    for (int dir = 0; dir < 16; dir++) {
        sprintf(path, "dir%d", dir);
        mkdir(path, 0700);
        for (int name = 0; name < 16; name++) {
            sprintf(path, "dir%d/%d", dir, name);
            close(creat(path, 0600));
        }
    }
    while (count-- > 0) {
        sprintf(path, "dir%d/%d", below(16), below(32));
        stat(path, &about);
    }
}

/* Copies within a shared segment, under a semaphore. */
static void shared_memory(long count) {
    int segment = shmget(IPC_PRIVATE, 16 * PAGE, 0600), lock = semget(IPC_PRIVATE, 1, 0600);
    must(segment >= 0 && lock >= 0, "shmget");
    char *at = shmat(segment, NULL, 0);
    struct sembuf up = { 0, 1, 0 }, down = { 0, -1, 0 };
    must(at != (char *)-1 && !semop(lock, &up, 1), "shmat");
    while (count-- > 0) {
        must(!semop(lock, &down, 1), "semop");
        memcpy(at + below(8) * PAGE, at + (8 + below(8)) * PAGE, MESSAGE);
        must(!semop(lock, &up, 1), "semop");
    }
    shmctl(segment, IPC_RMID, NULL);
    semctl(lock, 0, IPC_RMID);
}

/* Messages from one end to the other. */
static void messages(const int ends[2], long count) {
    must(ends[0] >= 0 && ends[1] >= 0, "ends");
    while (count-- > 0) {
        must(write(ends[1], buffer, MESSAGE) == MESSAGE, "write");
        for (int got = 0; got < MESSAGE;) {
            int more = read(ends[0], buffer, MESSAGE - got);
            must(more > 0, "read");
            got += more;
        }
    }
}

static void inet(int type, long count) {
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof here;
    int from = socket(AF_INET, type, 0), to = socket(AF_INET, type, 0);
    must(from >= 0 && to >= 0, "socket");
    must(!bind(to, (void *)&here, sizeof here) && !getsockname(to, (void *)&here, &size), "bind");
    must(type == SOCK_DGRAM || !listen(to, 1), "listen");
    must(!connect(from, (void *)&here, sizeof here), "connect");
    int ends[2] = { type == SOCK_DGRAM ? to : accept(to, NULL, NULL), from };
    messages(ends, count);
}

static void tcp_test(long count) { inet(SOCK_STREAM, count); }
static void udp_test(long count) { inet(SOCK_DGRAM, count); }

static void fifo_test(long count) {
    unlink("fifo");
    must(!mkfifo("fifo", 0600), "mkfifo");
    int end = open("fifo", O_RDWR), ends[2] = { end, end };
    messages(ends, count);
}

static void pair(int type, long count) {
    int ends[2];
    must(!socketpair(AF_UNIX, type, 0, ends), "socketpair");
    messages(ends, count);
}

static void stream_pipe(long count) { pair(SOCK_STREAM, count); }
static void dgram_pipe(long count) { pair(SOCK_DGRAM, count); }

static void pipe_cpy(long count) {
    int ends[2];
    must(!pipe(ends), "pipe");
    messages(ends, count);
}

static const struct {
    const char *name;
    void (*run)(long count);
} tests[] = {
    { "creat-clo", creat_clo },
    { "page_test", page_test },
    { "brk_test", brk_test },
    { "exec_test", exec_test },
    { "fork_test", fork_test },
    { "link_test", link_test },
    { "disk_rr", disk_rr },
    { "disk_rw", disk_rw },
    { "disk_wrt", disk_wrt },
    { "disk_src", disk_src },
    { "shared_memory", shared_memory },
    { "tcp_test", tcp_test },
    { "udp_test", udp_test },
    { "fifo_test", fifo_test },
    { "stream_pipe", stream_pipe },
    { "dgram_pipe", dgram_pipe },
    { "pipe_cpy", pipe_cpy },
};

int main(int argc, char **argv) {
    /* The program that is loaded by a test. */
    if (argc == 1)
        return 0;
    long count = argc == 3 ? atol(argv[2]) : 0;
    for (size_t n = 0; n < sizeof tests / sizeof *tests; n++) {
        if (count <= 0 || strcmp(argv[1], tests[n].name))
            continue;
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        tests[n].run(count);
        clock_gettime(CLOCK_MONOTONIC, &to);
        double seconds = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
        printf("%s %.0f\n", argv[1], count / seconds);
        return 0;
    }
    fprintf(stderr, "operations TEST COUNT, TEST one of");
    for (size_t n = 0; n < sizeof tests / sizeof *tests; n++)
        fprintf(stderr, " %s", tests[n].name);
    fprintf(stderr, "\n");
    return 2;
}
