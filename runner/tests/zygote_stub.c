/* The native library's part in the zygote's loop without isolation: receives descriptors, forks, puts them in place. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STREAMS = 3 };
static int requests;
static int streams[STREAMS];

int belljar_zygote_open(int plan, int socket)
{
    char word[5] = {0};
    if (read(plan, word, 4) != 4 || strcmp(word, "plan") != 0)
        return -EINVAL;
    requests = socket;
    return 0;
}

void belljar_zygote_ready(void)
{
    (void)!write(requests, "R", 1);
}

int belljar_zygote_next(void)
{
    char byte, control[CMSG_SPACE(sizeof streams)];
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(requests, &message, 0);
    if (got < 0)
        return -errno;
    if (got == 0)
        return 1;
    memcpy(streams, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof streams);
    return 0;
}

int belljar_zygote_fork(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < STREAMS; i++)
            dup2(streams[i], i + 1);
        for (int fd = STREAMS + 1; fd < 256; fd++)
            close(fd);
        return 0;
    }
    for (int i = 0; i < STREAMS; i++)
        close(streams[i]);
    (void)!write(requests, &pid, sizeof pid);
    return pid;
}
