// steps - where a thread of another process is, instruction by instruction.
//
//   steps THREAD CALLS FILE
//
// Runs the thread step by step (ptrace) until it has made CALLS system calls of io_uring_enter, which end a turn
// each, and writes the address of each instruction outside the kernel, in hexadecimal, one a line; a system call is
// "S number". A step takes microseconds, so what waits for time happens in more turns than it does otherwise.
//
// Build: cc -O2 -o steps steps.c
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#ifndef __x86_64__
#error "for x86-64 only"
#endif

static void die(const char *what) { perror(what); exit(1); }

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: steps THREAD CALLS FILE\n"); return 2; }
    int thread = atoi(argv[1]), left = atoi(argv[2]), status;
    FILE *out = fopen(argv[3], "w");
    if (!out) die(argv[3]);
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_INTERRUPT, thread, 0, 0)) die("ptrace");
    if (waitpid(thread, &status, __WALL) < 0) die("waitpid");
    while (left > 0 && WIFSTOPPED(status)) {
        struct user_regs_struct regs;
        if (ptrace(PTRACE_GETREGS, thread, 0, &regs)) die("ptrace");
        errno = 0;
        long word = ptrace(PTRACE_PEEKTEXT, thread, regs.rip, 0);
        if (errno) die("ptrace");
        if ((word & 0xffff) == 0x050f) {
            fprintf(out, "S %llu\n", regs.rax);
            left -= regs.rax == SYS_io_uring_enter;
        } else {
            fprintf(out, "%llx\n", regs.rip);
        }
        if (ptrace(PTRACE_SINGLESTEP, thread, 0, 0)) die("ptrace");
        if (waitpid(thread, &status, __WALL) < 0) die("waitpid");
    }
    ptrace(PTRACE_DETACH, thread, 0, 0);
    return fclose(out) ? 1 : 0;
}
