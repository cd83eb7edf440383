// frames - what raw frames of Ethernet do on a wire, without any protocol: the ceiling and the floor for HyperSCSI.
//
//   frames sink IF SECONDS                    counts what comes: payload bytes per second, frames
//   frames flood IF MAC BYTES SECONDS [PPS]   sends frames of so many bytes of payload, as fast as they go or so many a second
//   frames pong IF BACK BYTES                 answers each frame with BACK frames of BYTES, until it is killed
//   frames ping IF MAC BACK COUNT             one short frame out, BACK frames back, COUNT times: percentiles in us
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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
int main(int count, char **of) {
    if (count == 4 && !strcmp(of[1], "sink")) sink(of[2], atof(of[3]));
    else if (count >= 6 && !strcmp(of[1], "flood")) flood(of[2], of[3], atoi(of[4]), atof(of[5]), count > 6 ? atof(of[6]) : 0);
    else if (count == 6 && !strcmp(of[1], "storm")) storm(of[2], of[3], atof(of[4]), atof(of[5]));
    else if (count == 5 && !strcmp(of[1], "pong")) pong(of[2], atoi(of[3]), atoi(of[4]));
    else if (count == 6 && !strcmp(of[1], "ping")) ping(of[2], of[3], atoi(of[4]), atoi(of[5]));
    else { fprintf(stderr, "usage: see the top of frames.c\n"); return 2; }
    return 0;
}
