/* A disk for Tarn that reads zeros and forgets what is written, from memory: a handler for measuring.
 *
 *     cc -O2 -pthread -o null null.c && ./null SOCKET
 *
 * Then, in tarn.toml: store = "handler:SOCKET". The protocol is docs/internals/handler.md. At SIGUSR1 it prints how many commands
 * it has ended, and with how many system calls. The machine has to be little-endian. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BLOCK = 512, BLOCKS = 1 << 21, ASLEEP = 1 };

static atomic_ulong commands, calls;

struct ring {
    int stream;
    uint8_t *memory;
    size_t length;
    uint32_t slots, entry, submissions, completions, data, done, ended;
};

static uint32_t number(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t big(const uint8_t *at, int length) {
    uint32_t value = 0;
    while (length--) value = value << 8 | *at++;
    return value;
}

static _Atomic uint32_t *word(struct ring *ring, size_t offset) {
    return (_Atomic uint32_t *)(ring->memory + offset);
}

/* The first bytes of a connection. */
static int greet(struct ring *ring) {
    uint8_t hello[64], answer[16] = "TARNHDLR\1";
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {hello, sizeof hello};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(ring->stream, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof hello) return -1;
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    if (!first || first->cmsg_type != SCM_RIGHTS || memcmp(hello, answer, 8)) return -1;
    int file;
    memcpy(&file, CMSG_DATA(first), sizeof file);
    ring->length = number(hello + 16);
    ring->memory = mmap(NULL, ring->length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (ring->memory == MAP_FAILED) return ring->memory = NULL, -1;
    ring->slots = number(hello + 12), ring->entry = number(hello + 20);
    ring->submissions = number(hello + 24), ring->completions = number(hello + 28), ring->data = number(hello + 32);
    return send(ring->stream, answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer ? 0 : -1;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t inquiry(const uint8_t *cdb, uint8_t *page) {
    static const char standard[] = "\0\0\6\2\37\0\0\2EXAMPLE NULL            1   ", serial[] = "\0\x80\0\5NULL1";
    if (!(cdb[1] & 1)) return memcpy(page, standard, 36), 36;
    if (cdb[2] == 0x00) return memcpy(page, "\0\0\0\2\0\x80", 6), 6;
    return cdb[2] == 0x80 ? (memcpy(page, serial, 9), 9) : 0;
}

/* Carries out a command: its status, how many bytes it transfers, and the additional sense code of a refusal. */
static uint32_t execute(const uint8_t *cdb, uint32_t out, uint32_t room, uint8_t *data, uint32_t *moved, uint8_t *code) {
    uint8_t page[64] = {0};
    uint32_t length = 0;
    *moved = out;
    switch (cdb[0]) {
    case 0x00: case 0x2a: case 0x8a: case 0x35: case 0x91: return 0;
    case 0x08: *moved = (cdb[4] ? cdb[4] : 256) * BLOCK; break;
    case 0x28: *moved = big(cdb + 7, 2) * BLOCK; break;
    case 0x88: *moved = big(cdb + 10, 4) * BLOCK; break;
    case 0x12: *code = 0x24, length = least(inquiry(cdb, page), big(cdb + 3, 2)); break;
    case 0x1a: page[0] = 3, length = least(4, cdb[4]); break;
    case 0x25: memcpy(page, "\0\x1f\xff\xff\0\0\2\0", length = 8); break;
    case 0x9e: memcpy(page, "\0\0\0\0\0\x1f\xff\xff\0\0\2\0", 12), length = least(32, big(cdb + 10, 4)); break;
    default: *code = 0x20;
    }
    if (length) memcpy(data, page, least(length, room)), *moved = length;
    else if (!*code) memset(data, 0, least(*moved, room));
    return !length && *code ? 2 : 0;
}

/* Carries out the command of an entry and writes its end. */
static void carry_out(struct ring *ring) {
    uint8_t *from = ring->memory + ring->submissions + ring->done++ % ring->slots * ring->entry;
    uint8_t *to = ring->memory + ring->completions + ring->ended++ % ring->slots * ring->entry;
    uint8_t code = 0;
    uint32_t end[4] = {number(from)};
    end[1] = execute(from + 60, number(from + 8), number(from + 12), ring->memory + ring->data + number(from + 16), &end[2], &code);
    if (end[1]) {
        uint8_t sense[18] = {0x70, [2] = 5, [7] = 10, [12] = code};
        end[2] = 0, end[3] = sizeof sense;
        memcpy(to + 32, sense, sizeof sense);
    }
    memcpy(to, end, sizeof end);
}

static void *serve(void *given) {
    struct ring *ring = given;
    uint8_t bytes[64];
    if (greet(ring)) goto end;
    for (;;) {
        uint32_t until = atomic_load_explicit(word(ring, 0), memory_order_acquire), count = until - ring->done;
        while (ring->done != until) carry_out(ring);
        if (count) {
            atomic_fetch_add_explicit(&commands, count, memory_order_relaxed);
            atomic_store_explicit(word(ring, 128), ring->ended, memory_order_release);
            atomic_thread_fence(memory_order_seq_cst);
            if (atomic_load(word(ring, 192)) == ASLEEP && atomic_exchange(word(ring, 192), 0) == ASLEEP) {
                atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
                if (send(ring->stream, bytes, 1, MSG_NOSIGNAL) != 1) break;
            }
            continue;
        }
        atomic_store(word(ring, 64), ASLEEP);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(word(ring, 0), memory_order_acquire) != ring->done) {
            atomic_store(word(ring, 64), 0);
            continue;
        }
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
        if (recv(ring->stream, bytes, sizeof bytes, 0) <= 0) break;
    }
end:
    close(ring->stream);
    if (ring->memory) munmap(ring->memory, ring->length);
    free(ring);
    return NULL;
}

static void *count(void *signals) {
    for (int signal; !sigwait(signals, &signal);) {
        printf("%lu commands, %lu system calls\n", atomic_load(&commands), atomic_load(&calls));
        fflush(stdout);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return fprintf(stderr, "usage: null SOCKET\n"), 2;
    strcpy(address.sun_path, argv[1]);
    unlink(argv[1]);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) return perror(argv[1]), 1;
    static sigset_t signals;
    pthread_t thread;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pthread_create(&thread, NULL, count, &signals);
    for (;;) {
        struct ring *ring = calloc(1, sizeof *ring);
        if (!ring || (ring->stream = accept(listener, NULL, NULL)) < 0) return perror("accept"), 1;
        if (pthread_create(&thread, NULL, serve, ring)) return perror("thread"), 1;
        pthread_detach(thread);
    }
}
