// frames - what raw frames of Ethernet do on a wire, without any protocol: the ceiling and the floor for HyperSCSI.
//
//   frames sink IF SECONDS                    counts what comes: payload bytes per second, frames
//   frames flood IF MAC BYTES SECONDS [PPS]   sends frames of so many bytes of payload, as fast as they go or so many a second
//   frames pong IF BACK BYTES                 answers each frame with BACK frames of BYTES, until it is killed
//   frames ping IF MAC BACK COUNT             one short frame out, BACK frames back, COUNT times: percentiles in us
//   frames answer IF BYTES                    answers each frame of N requests with N pieces of BYTES of 128 MiB of memory, as many in a
//                                             frame as the MTU has room for, until it is killed
//   frames ask IF MAC BYTES DEPTH SECONDS     keeps DEPTH requests under way, all that are free in one frame: pieces, frames each way
//   frames relay IF IF LEAST MOST BURSTS      carries HyperSCSI between two interfaces, each frame LEAST to MOST us later, and loses some: of
//                                             10,000 so many begin a burst, which each of its frames ends with a chance of a quarter.
//                                             Carries nothing for 3 s after SIGUSR1
//   frames storm IF HEX SECONDS PPS           broadcasts a frame of HyperSCSI with this payload, each time from another station
//
// A full queue of the interface (ENOBUFS) is tried again. Both ends of ping sleep in recv and poll. EtherType 0x88B5 (for
// experiments), but of storm, so that it does not meet HyperSCSI. Build: cc -O2 -o frames frames.c
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TYPE = 0x88b5, ROOM = 9216 };
static uint8_t buffer[ROOM];
static struct sockaddr_ll to;

static void die(const char *what) { perror(what); exit(1); }
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static int open_socket(const char *name, int listens) {
    int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    int size = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(TYPE);
    to.sll_ifindex = if_nametoindex(name);
    if (!to.sll_ifindex) die(name);
    if (listens && bind(fd, (struct sockaddr *)&to, sizeof to)) die("bind");
    return fd;
}
static void set_station(const char *text) {
    unsigned a[6];
    if (sscanf(text, "%x:%x:%x:%x:%x:%x", a, a + 1, a + 2, a + 3, a + 4, a + 5) != 6) { errno = EINVAL; die(text); }
    to.sll_halen = 6;
    for (int i = 0; i < 6; i++) to.sll_addr[i] = a[i];
}
static void send_one(int fd, size_t bytes) {
    while (sendto(fd, buffer, bytes, 0, (struct sockaddr *)&to, sizeof to) < 0) {
        if (errno != ENOBUFS && errno != EAGAIN) die("sendto");
        usleep(50);
    }
}
static int mtu_of(const char *name) {
    struct ifreq ask = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    strncpy(ask.ifr_name, name, sizeof ask.ifr_name - 1);
    if (fd < 0 || ioctl(fd, SIOCGIFMTU, &ask)) die(name);
    close(fd);
    return ask.ifr_mtu;
}
static int compare(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

static void sink(const char *name, double seconds) {
    int fd = open_socket(name, 1);
    double begin = 0, last = 0, end = now() + seconds + 5;
    uint64_t bytes = 0, frames = 0, first = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (now() < end) {
        ssize_t got = recv(fd, buffer, ROOM, MSG_DONTWAIT);
        if (got < 0) { poll(&ready, 1, 20); if (begin && now() - last > 0.5) break; continue; }
        last = now();
        if (!begin) { begin = last; end = begin + seconds; first = got; }
        bytes += got;
        frames++;
    }
    double took = last - begin;
    printf("{\"bytes_per_second\": %.0f, \"frames\": %llu, \"seconds\": %.3f}\n", took > 0 ? (bytes - first) / took : 0,
           (unsigned long long)frames, took);
}
static void flood(const char *name, const char *station, size_t bytes, double seconds, double rate) {
    int fd = open_socket(name, 0);
    set_station(station);
    double begin = now(), sent = 0;
    while (now() - begin < seconds) {
        if (rate && sent / rate > now() - begin) { usleep(200); continue; }
        send_one(fd, bytes);
        sent++;
    }
    printf("{\"frames\": %.0f}\n", sent);
}
static void storm(const char *name, const char *hex, double seconds, double rate) {
    size_t bytes = strlen(hex) / 2;
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    to.sll_family = AF_PACKET;
    to.sll_ifindex = if_nametoindex(name);
    if (!to.sll_ifindex || bytes + 14 > ROOM) die(name);
    memset(buffer, 0xff, 6);
    memcpy(buffer + 12, "\x88\x9a", 2);
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) die("hex");
        buffer[14 + i] = byte;
    }
    double begin = now();
    uint32_t sent = 0;
    while (now() - begin < seconds) {
        if (sent / rate > now() - begin) { usleep(200); continue; }
        memcpy(buffer + 6, "\x02\x01", 2);
        memcpy(buffer + 8, &sent, 4);
        send_one(fd, bytes + 14);
        sent++;
    }
    printf("{\"frames\": %u, \"per_second\": %.0f}\n", sent, sent / (now() - begin));
}
static void pong(const char *name, int back, size_t bytes) {
    int fd = open_socket(name, 1);
    for (;;) {
        struct sockaddr_ll from;
        socklen_t length = sizeof from;
        if (recvfrom(fd, buffer, ROOM, 0, (struct sockaddr *)&from, &length) < 0) die("recvfrom");
        to.sll_halen = 6;
        memcpy(to.sll_addr, from.sll_addr, 6);
        for (int i = 0; i < back; i++) send_one(fd, bytes);
    }
}
static void ping(const char *name, const char *station, int back, int count) {
    int fd = open_socket(name, 1), done = 0, lost = 0;
    double *took = calloc(count, sizeof *took);
    set_station(station);
    while (done < count && lost < 100) {
        double begin = now();
        send_one(fd, 46);
        int left = back;
        while (left) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            if (poll(&ready, 1, 500) <= 0) break;
            if (recv(fd, buffer, ROOM, 0) > 0) left--;
        }
        if (left) lost++;
        else took[done++] = (now() - begin) * 1e6;
    }
    qsort(took, done, sizeof *took, compare);
    printf("{\"count\": %d, \"lost\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", done, lost, done ? took[done / 2] : 0,
           done ? took[done * 99 / 100] : 0);
}
// A frame of requests or pieces has 48 bytes in front, the first two of them how many it has, and 48 for each: what a small header would take.
enum { BATCH = 64, HEAD = 48, REGION = 128 << 20 };
static struct batch {
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH][9];
    struct sockaddr_ll from[BATCH];
    uint8_t room[BATCH][ROOM];
} in, out;

static int receive(int fd) {
    for (int i = 0; i < BATCH; i++) {
        in.parts[i][0] = (struct iovec){in.room[i], ROOM};
        in.messages[i].msg_hdr = (struct msghdr){.msg_iov = in.parts[i], .msg_iovlen = 1, .msg_name = &in.from[i], .msg_namelen = sizeof *in.from};
    }
    int got = recvmmsg(fd, in.messages, BATCH, MSG_WAITFORONE, NULL);
    if (got < 0 && errno != EAGAIN) die("recvmmsg");
    return got < 0 ? 0 : got;
}
static void send_all(int fd, int count) {
    for (int done = 0; done < count;) {
        int sent = sendmmsg(fd, out.messages + done, count - done, 0);
        if (sent < 0 && errno != ENOBUFS && errno != EAGAIN) die("sendmmsg");
        if (sent < 0) usleep(50);
        else done += sent;
    }
}
static void answer(const char *name, size_t bytes) {
    int fd = open_socket(name, 1), most = (mtu_of(name) - HEAD) / (int)(bytes + HEAD);
    uint8_t *region = malloc(REGION);
    if (!region || most < 1 || most > 4) { fprintf(stderr, "a frame has room for 1 to 4 pieces\n"); exit(2); }
    memset(region, 1, REGION);
    for (uint32_t seed = 1;;) {
        int got = receive(fd), frames = 0;
        for (int i = 0; i < got; i++) {
            uint16_t left;
            memcpy(&left, in.room[i], 2);
            while (left) {
                uint16_t now_sent = left < most ? left : most;
                struct msghdr *message = &out.messages[frames].msg_hdr;
                memcpy(out.room[frames], &now_sent, 2);
                out.parts[frames][0] = (struct iovec){out.room[frames], HEAD};
                for (int piece = 0; piece < now_sent; piece++) {
                    seed = seed * 1664525 + 1013904223;
                    out.parts[frames][1 + 2 * piece] = (struct iovec){out.room[frames] + HEAD, HEAD};
                    out.parts[frames][2 + 2 * piece] = (struct iovec){region + (seed >> 12) % (REGION / bytes) * bytes, bytes};
                }
                out.from[frames] = in.from[i];
                out.from[frames].sll_protocol = htons(TYPE);
                *message = (struct msghdr){.msg_iov = out.parts[frames], .msg_iovlen = 1 + 2 * now_sent, .msg_name = &out.from[frames], .msg_namelen = sizeof *out.from};
                left -= now_sent;
                if (++frames == BATCH || (!left && i == got - 1)) { send_all(fd, frames); frames = 0; }
            }
        }
    }
}
static void ask(const char *name, const char *station, size_t bytes, int depth, double seconds) {
    int fd = open_socket(name, 1), space = depth, most = mtu_of(name) / HEAD - 1;
    struct timeval limit = {.tv_usec = 200000};
    uint64_t pieces = 0, frames_in = 0, frames_out = 0;
    set_station(station);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    double begin = now();
    while (now() - begin < seconds) {
        while (space) {
            uint16_t count = space < most ? space : most;
            memcpy(buffer, &count, 2);
            send_one(fd, HEAD + HEAD * count);
            frames_out++;
            space -= count;
        }
        int got = receive(fd);
        if (!got) space = depth;
        for (int i = 0; i < got; i++) {
            uint16_t came;
            memcpy(&came, in.room[i], 2);
            if (in.messages[i].msg_len < came * bytes) continue;
            pieces += came;
            space += came;
        }
        frames_in += got;
    }
    double took = now() - begin;
    printf("{\"pieces\": %llu, \"seconds\": %.3f, \"frames_in\": %llu, \"frames_out\": %llu}\n", (unsigned long long)pieces, took,
           (unsigned long long)frames_in, (unsigned long long)frames_out);
}
// A frame on its way through the relay; those that are late are overtaken. What finds no place is lost.
static struct held { double at; int to; size_t length; uint8_t bytes[2048]; } held[1024];
static volatile sig_atomic_t goes_dark;
static void darken(int signal) { (void)signal; goes_dark = 1; }

static void relay(const char *names[2], double least, double most, int bursts) {
    struct pollfd ends[2];
    int in_burst[2] = {0, 0}, count = 0;
    double dark_until = 0;
    for (int end = 0; end < 2; end++) {
        struct sockaddr_ll from = {.sll_family = AF_PACKET, .sll_protocol = htons(0x889a), .sll_ifindex = if_nametoindex(names[end])};
        ends[end].fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(0x889a));
        ends[end].events = POLLIN;
        if (ends[end].fd < 0 || !from.sll_ifindex || bind(ends[end].fd, (struct sockaddr *)&from, sizeof from)) die(names[end]);
    }
    signal(SIGUSR1, darken);
    for (;;) {
        double next = now() + 1;
        for (int i = 0; i < count;) {
            if (held[i].at > now()) { next = held[i].at < next ? held[i].at : next; i++; continue; }
            send(ends[held[i].to].fd, held[i].bytes, held[i].length, 0);
            held[i] = held[--count];
        }
        double left = next - now();
        struct timespec wait = {.tv_sec = 0, .tv_nsec = left > 0 ? (left < 0.99 ? left : 0.99) * 1e9 : 0};
        ppoll(ends, 2, &wait, NULL);
        if (goes_dark) { goes_dark = 0; dark_until = now() + 3; }
        for (int end = 0; end < 2; end++)
            for (ssize_t got; (got = recv(ends[end].fd, buffer, sizeof held->bytes, 0)) > 0;) {
                in_burst[end] = in_burst[end] ? rand() % 4 != 0 : rand() % 10000 < bursts;
                if (in_burst[end] || count == sizeof held / sizeof *held || now() < dark_until) continue;
                held[count].at = now() + (least + (most - least) * rand() / RAND_MAX) / 1e6;
                held[count].to = !end;
                held[count].length = got;
                memcpy(held[count++].bytes, buffer, got);
            }
    }
}
int main(int count, const char **of) {
    if (count == 4 && !strcmp(of[1], "sink")) sink(of[2], atof(of[3]));
    else if (count == 7 && !strcmp(of[1], "relay")) relay(&of[2], atof(of[4]), atof(of[5]), atoi(of[6]));
    else if (count >= 6 && !strcmp(of[1], "flood")) flood(of[2], of[3], atoi(of[4]), atof(of[5]), count > 6 ? atof(of[6]) : 0);
    else if (count == 6 && !strcmp(of[1], "storm")) storm(of[2], of[3], atof(of[4]), atof(of[5]));
    else if (count == 4 && !strcmp(of[1], "answer")) answer(of[2], atoi(of[3]));
    else if (count == 7 && !strcmp(of[1], "ask")) ask(of[2], of[3], atoi(of[4]), atoi(of[5]), atof(of[6]));
    else if (count == 5 && !strcmp(of[1], "pong")) pong(of[2], atoi(of[3]), atoi(of[4]));
    else if (count == 6 && !strcmp(of[1], "ping")) ping(of[2], of[3], atoi(of[4]), atoi(of[5]));
    else { fprintf(stderr, "usage: see the top of frames.c\n"); return 2; }
    return 0;
}
