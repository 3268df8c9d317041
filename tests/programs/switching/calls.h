// Moving bytes by a random call: every byte received is compared, every return value is held against what the kernel
// promises.
#pragma once
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "end.h"

// Programs built with _FORTIFY_SOURCE call these.
extern ssize_t __read_chk(int, void *, size_t, size_t);
extern ssize_t __recv_chk(int, void *, size_t, size_t, int);
extern ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);

struct moved {
    ssize_t n;     // bytes moved; 0 = end of file, or only looked at; -1 = EAGAIN
    bool partial;  // less than asked for, and no signal to blame: the next change must be reported as after EAGAIN
    bool looked;   // MSG_PEEK: nothing was taken
};

// Whether no signal can have cut a call short that began when `quiet` and `begun` were read.
static bool undisturbed(bool quiet, int begun) { return quiet && !storms && begun == storms_begun; }

static void compare(struct actor *a, int k, const char *call, const uint8_t *got, size_t n, uint64_t at) {
    struct conn *c = &a->e->conn[k];
    if (at + n > c->rend)
        fail(a->e, "%s on connection %d: %zu bytes at %llu, %llu more than were sent", call, k, n, (unsigned long long)at,
             (unsigned long long)(at + n - c->rend));
    stream_fill(c->rkey, at, a->want, n);
    if (!memcmp(got, a->want, n)) return;
    size_t i = 0, wrong = 0;
    while (got[i] == a->want[i]) i++;
    for (size_t j = i; j < n; j++) wrong += got[j] != a->want[j];
    int64_t from = n - i >= 8 ? stream_locate(c->rkey, at + i, got + i, 8 << 20) : -1;
    fail(a->e, "byte mismatch: %s on connection %d returned %zu bytes at %llu; from byte %zu (offset %llu) %zu differ: got %02x, "
         "expected %02x; the bytes %s %+lld",
         call, k, n, (unsigned long long)at, i, (unsigned long long)(at + i), wrong, got[i], a->want[i],
         from < 0 ? "are no part of the stream near by, or too few;" : "belong to the offset",
         from < 0 ? 0 : (long long)(from - (int64_t)(at + i)));
}

// Splits `n` bytes at `buf` into up to five pieces, some of them empty.
static int scatter(struct actor *a, struct iovec *v, uint8_t *buf, size_t n) {
    int pieces = 1 + (int)below(&a->rng, 5);
    for (int i = 0; i < pieces; i++) {
        size_t len = i == pieces - 1 ? n : chance(&a->rng, 6) ? 0 : below(&a->rng, n + 1);
        v[i] = (struct iovec){buf, len};
        buf += len;
        n -= len;
    }
    return pieces;
}

static void not_expected(struct actor *a, int k, const char *call, int flags, int error) {
    fail(a->e, "%s (flags %#x) on connection %d: %s", call, (unsigned)flags, k, strerror(error));
}

static void set_nonblock(struct actor *a, int k, bool on) {
    int fd = any_fd(a, k), flag = on;
    switch (below(&a->rng, 3)) {
    case 0:
        if (ioctl(fd, FIONBIO, &flag)) not_expected(a, k, "ioctl FIONBIO", 0, errno);
        break;
    case 1:
        flag = fcntl(fd, F_GETFL);
        if (flag < 0 || fcntl(fd, F_SETFL, on ? flag | O_NONBLOCK : flag & ~O_NONBLOCK)) not_expected(a, k, "fcntl", 0, errno);
        break;
    default:
        flag = fcntl64(fd, F_GETFL);
        if (flag < 0 || fcntl64(fd, F_SETFL, on ? flag | O_NONBLOCK : flag & ~O_NONBLOCK)) not_expected(a, k, "fcntl64", 0, errno);
    }
    if (!!(fcntl(any_fd(a, k), F_GETFL) & O_NONBLOCK) != on) fail(a->e, "O_NONBLOCK not as set on connection %d", k);
    a->e->conn[k].nonblock = on;
}

// Reads once. `ready`: the socket was just reported readable, so EAGAIN is a lie where this actor reads alone.
// `block`: the call may sleep.
static struct moved take(struct actor *a, int k, bool ready, bool block) {
    struct end *e = a->e;
    struct conn *c = &e->conn[k];
    uint64_t at = c->rpos, left = c->rend - at;
    int fd = any_fd(a, k), flags = 0, error, call;
    size_t n = size_upto(&a->rng, BUFFER);
    bool quiet = !storms;
    int begun = storms_begun;
    ssize_t got = -1;
    const char *name = "";
    struct iovec v[5];
    struct msghdr m = {.msg_iov = v};
    struct sockaddr_storage from;
    socklen_t from_len = sizeof from;
    bool sleeps = block && !c->nonblock;
    bool exact = a->alone;
    bool emptied = true;  // a call that returns less than asked for has taken all there was

    // Calls without flags obey O_NONBLOCK alone; others can be told not to wait.
    do call = (int)below(&a->rng, 16);
    while ((!block && !c->nonblock && !(ready && exact) && (call < 2 || call == 8)) || (call == 13 && !sleeps) ||
           (call == 15 && (!e->use_splice || !chance(&a->rng, 100))) || (call == 14 && !sleeps));
    if (!block && (!c->nonblock || chance(&a->rng, 3))) flags |= MSG_DONTWAIT;

    switch (call) {
    case 0: name = "read", counted(e, C_read), got = read(fd, a->buf, n), flags = 0; break;
    case 1: name = "readv", counted(e, C_readv), got = readv(fd, v, scatter(a, v, a->buf, n)), flags = 0; break;
    case 2: case 3: name = "recv", counted(e, C_recv), got = recv(fd, a->buf, n, flags); break;
    case 4: name = "recvfrom", counted(e, C_recvfrom), got = recvfrom(fd, a->buf, n, flags, (void *)&from, &from_len); break;
    case 5: case 6:
        name = "recvmsg", counted(e, C_recvmsg);
        m.msg_iovlen = (size_t)scatter(a, v, a->buf, n);
        got = recvmsg(fd, &m, flags);
        if (got > 0 && m.msg_flags & ~MSG_CMSG_CLOEXEC) fail(e, "recvmsg set flags %#x", (unsigned)m.msg_flags);
        break;
    case 7: {
        name = "recvmmsg", counted(e, C_recvmmsg);
        struct mmsghdr mm[4] = {0};
        unsigned count = 1 + (unsigned)below(&a->rng, 4);
        size_t each = n / count + 1, sum = 0;
        for (unsigned i = 0; i < count; i++) {
            v[i] = (struct iovec){a->buf + i * each, each};
            mm[i].msg_hdr.msg_iov = &v[i], mm[i].msg_hdr.msg_iovlen = 1;
        }
        int messages = recvmmsg(fd, mm, count, flags | MSG_WAITFORONE, NULL);
        error = errno;
        if (messages == 0) fail(e, "recvmmsg of %u returned 0", count);
        if (messages > 0) {
            for (int i = 0; i < messages; i++) {
                if (mm[i].msg_len > each) fail(e, "recvmmsg: message of %u bytes in %zu", mm[i].msg_len, each);
                if (mm[i].msg_len == 0 && i == 0) break;
                compare(a, k, name, a->buf + (size_t)i * each, mm[i].msg_len, at + sum);
                memmove(a->buf + sum, a->buf + (size_t)i * each, mm[i].msg_len);
                sum += mm[i].msg_len;
            }
            got = (ssize_t)sum;
        }
        n = each * count;
        errno = error;
        break;
    }
    case 8: name = "__read_chk", counted(e, C_read_chk), got = __read_chk(fd, a->buf, n, BUFFER), flags = 0; break;
    case 9:
        if (chance(&a->rng, 2)) name = "__recv_chk", counted(e, C_recv_chk), got = __recv_chk(fd, a->buf, n, BUFFER, flags);
        else name = "__recvfrom_chk", counted(e, C_recvfrom_chk), got = __recvfrom_chk(fd, a->buf, n, BUFFER, flags, NULL, NULL);
        break;
    case 10:
        flags |= MSG_PEEK;
        name = "recv MSG_PEEK", counted(e, C_peek), got = recv(fd, a->buf, n, flags);
        break;
    case 11:
        if (chance(&a->rng, 2)) {
            flags |= MSG_PEEK;
            name = "recvmsg MSG_PEEK", counted(e, C_peekmsg);
            m.msg_iovlen = (size_t)scatter(a, v, a->buf, n);
            got = recvmsg(fd, &m, flags);
        } else {
            flags |= MSG_TRUNC;
            name = "recv MSG_TRUNC", counted(e, C_trunc);
            memset(a->buf, 0xa5, n);
            got = recv(fd, a->buf, n, flags);
            for (size_t i = 0; got > 0 && i < n; i++)
                if (a->buf[i] != 0xa5) fail(e, "MSG_TRUNC wrote to the buffer at %zu of %zu", i, n);
        }
        break;
    case 12: {  // as much as FIONREAD promises is there, and comes without waiting
        name = "FIONREAD and recv", counted(e, C_fionread);
        int there = -1;
        if (ioctl(fd, FIONREAD, &there)) not_expected(a, k, "ioctl FIONREAD", 0, errno);
        if (there < 0 || (exact && (uint64_t)there > left)) fail(e, "FIONREAD %d where at most %llu can be", there, (unsigned long long)left);
        if (there == 0 && exact && ready) spurious(e, "FIONREAD 0 on connection %d, which was reported readable", k);
        if (there == 0) return (struct moved){.n = 0, .looked = true};
        if (!exact) {
            got = recv(fd, a->buf, n, flags);
            break;
        }
        if ((size_t)there > BUFFER) there = BUFFER;
        size_t sum = 0;
        while (sum < (size_t)there) {
            ssize_t part = recv(fd, a->buf + sum, (size_t)there - sum, MSG_DONTWAIT);
            if (part <= 0) fail(e, "FIONREAD promised %d on connection %d, recv had %zu and then %zd (%s)", there, k, sum, part, part ? strerror(errno) : "end of file");
            sum += (size_t)part;
        }
        got = (ssize_t)sum, n = sum;
        break;
    }
    case 13: {
        name = "recv MSG_WAITALL", counted(e, C_waitall);
        if (n > left) n = left;
        flags |= MSG_WAITALL;
        if (chance(&a->rng, 2)) got = recv(fd, a->buf, n, flags);
        else m.msg_iovlen = (size_t)scatter(a, v, a->buf, n), got = recvmsg(fd, &m, flags);
        if (got >= 0 && (size_t)got < n && undisturbed(quiet, begun)) {
            ssize_t next = recv(fd, a->buf, 1, MSG_PEEK | MSG_DONTWAIT);
            error = errno;
            fail(e, "MSG_WAITALL of %zu bytes on connection %d returned %zd (O_NONBLOCK %d; the next call %zd, %s)", n, k, got, !!(fcntl(fd, F_GETFL) & O_NONBLOCK), next, next < 0 ? strerror(error) : "no error");
        }
        break;
    }
    case 14: {  // a receive timeout: EAGAIN only when it has passed
        name = "recv with SO_RCVTIMEO", counted(e, C_rcvtimeo);
        uint64_t us = 1000 + below(&a->rng, 20000), start;
        struct timeval t = {.tv_sec = 0, .tv_usec = (long)us};
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t)) not_expected(a, k, "SO_RCVTIMEO", 0, errno);
        start = now_ns();
        got = recv(fd, a->buf, n, flags);
        error = errno;
        if (got < 0 && error == EAGAIN) {
            counted(e, C_timeouts);
            // The kernel counts in ticks of up to 10 ms and may round one down.
            if (now_ns() - start + 10000000u < us * 1000u) fail(e, "a timeout of %llu us ended after %llu us", (unsigned long long)us, (unsigned long long)(now_ns() - start) / 1000);
            if (exact && ready) spurious(e, "a timeout on connection %d, which was reported readable", k);
        }
        memset(&t, 0, sizeof t);
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t)) not_expected(a, k, "SO_RCVTIMEO", 0, errno);
        errno = error;
        if (got < 0 && error == EAGAIN) return (struct moved){.n = -1};
        break;
    }
    case 15: {
        name = "splice", counted(e, C_splice_in);
        int p[2];
        if (pipe2(p, O_CLOEXEC)) fail(e, "pipe: %s", strerror(errno));
        if (n > 4096) n = 4096;
        got = splice(fd, NULL, p[1], NULL, n, block || (ready && exact) ? 0 : SPLICE_F_NONBLOCK);
        error = errno;
        if (got > 0 && read(p[0], a->buf, (size_t)got) != got) fail(e, "a spliced pipe is short");
        close(p[0]), close(p[1]);
        errno = error;
        emptied = false;  // a pipe holds 16 pieces, and bytes that were sent one by one may lie in more
        break;
    }
    }
    if (got < 0) {
        error = errno;
        if (error == EINTR && storms_begun) return (struct moved){.n = 0, .looked = true};
        if (error != EAGAIN) not_expected(a, k, name, flags, error);
        if (ready && exact) spurious(e, "%s: EAGAIN on connection %d, which was reported readable", name, k);
        if (sleeps && exact && !(flags & MSG_DONTWAIT) && a->alone) fail(e, "%s: EAGAIN on blocking connection %d", name, k);
        counted(e, C_again_read);
        return (struct moved){.n = -1};
    }
    if (got == 0) return (struct moved){.n = 0};
    if ((size_t)got > n) fail(e, "%s of %zu bytes returned %zd", name, n, got);
    if (!(flags & MSG_TRUNC)) compare(a, k, name, a->buf, (size_t)got, at);
    else if ((uint64_t)got > left) fail(e, "MSG_TRUNC discarded %zd of %llu", got, (unsigned long long)left);
    if (flags & MSG_PEEK) return (struct moved){.n = 0, .looked = true};
    c->rpos = at + (uint64_t)got;
    atomic_fetch_add_explicit(&e->count[C_bytes], (uint64_t)got, memory_order_relaxed);
    if ((size_t)got < n) counted(e, C_short_read);
    return (struct moved){.n = got, .partial = (size_t)got < n && emptied && undisturbed(quiet, begun)};
}

// Writes once, at most up to the phase's end. `ready` and `block` as for take().
static struct moved give(struct actor *a, int k, bool ready, bool block) {
    struct end *e = a->e;
    struct conn *c = &e->conn[k];
    uint64_t at = c->wpos, left = c->wend - at;
    int fd = any_fd(a, k), flags = MSG_NOSIGNAL, error, call;
    size_t n = size_upto(&a->rng, left < BUFFER ? left : BUFFER);
    if (left <= BUFFER && chance(&a->rng, 8)) n = left;
    bool quiet = !storms;
    int begun = storms_begun;
    ssize_t put = -1;
    const char *name = "";
    struct iovec v[5];
    struct msghdr m = {.msg_iov = v};
    bool sleeps = block && !c->nonblock;
    bool whole = true;  // a sleeping call returns only when all is accepted

    do call = (int)below(&a->rng, 12);
    while ((!block && !c->nonblock && (call < 2 || call == 8 || call == 9)) ||
           (call == 11 && (!e->use_splice || !chance(&a->rng, 100))));
    if (!block && (!c->nonblock || chance(&a->rng, 3))) flags |= MSG_DONTWAIT;
    stream_fill(c->wkey, at, a->buf, n);
    if (e->corrupt_after && at + n > e->corrupt_after && at <= e->corrupt_after) a->buf[e->corrupt_after - at] ^= 0x10;

    switch (call) {
    case 0: name = "write", counted(e, C_write), put = write(fd, a->buf, n); break;
    case 1: name = "writev", counted(e, C_writev), put = writev(fd, v, scatter(a, v, a->buf, n)); break;
    case 2: case 3: name = "send", counted(e, C_send), put = send(fd, a->buf, n, flags); break;
    case 4: name = "sendto", counted(e, C_sendto), put = sendto(fd, a->buf, n, flags, NULL, 0); break;
    case 5: case 6:
        name = "sendmsg", counted(e, C_sendmsg);
        m.msg_iovlen = (size_t)scatter(a, v, a->buf, n);
        put = sendmsg(fd, &m, flags);
        break;
    case 7: {
        name = "sendmmsg", counted(e, C_sendmmsg);
        struct mmsghdr mm[4] = {0};
        unsigned count = 1 + (unsigned)below(&a->rng, 4);
        size_t each = n / count;
        if (each == 0) count = 1, each = n;
        n = each * count;
        for (unsigned i = 0; i < count; i++) {
            v[i] = (struct iovec){a->buf + i * each, each};
            mm[i].msg_hdr.msg_iov = &v[i], mm[i].msg_hdr.msg_iovlen = 1;
        }
        int messages = sendmmsg(fd, mm, count, flags);
        if (messages == 0) fail(e, "sendmmsg of %u returned 0", count);
        if (messages > 0) {
            put = 0;
            for (int i = 0; i < messages; i++) {
                if (mm[i].msg_len > each || mm[i].msg_len == 0) fail(e, "sendmmsg: message of %u bytes in %zu", mm[i].msg_len, each);
                if (mm[i].msg_len < each && i < messages - 1) fail(e, "sendmmsg: message %d of %d is short", i, messages);
                put += mm[i].msg_len;
            }
        }
        break;
    }
    case 8: case 9: {
        // A new file each time: TCP sends the file's pages themselves, which must not change until they have arrived.
        int file = memfd_create("sendfile", MFD_CLOEXEC);
        uint64_t base = below(&a->rng, 5000);
        if (file < 0 || pwrite(file, a->buf, n, (off_t)base) != (ssize_t)n) fail(e, "memfd: %s", strerror(errno));
        off_t off = (off_t)base;
        off64_t off64 = (off64_t)base;
        if (call == 8) {
            name = "sendfile", counted(e, C_sendfile);
            put = sendfile(fd, file, &off, n);
            if (put >= 0 && off != (off_t)base + put) fail(e, "sendfile moved its offset by %lld for %zd bytes", (long long)off - (long long)base, put);
        } else {
            name = "sendfile64", counted(e, C_sendfile64);
            if (lseek(file, (off_t)base, SEEK_SET) < 0) fail(e, "lseek: %s", strerror(errno));
            put = chance(&a->rng, 2) ? sendfile64(fd, file, NULL, n) : sendfile64(fd, file, &off64, n);
        }
        error = errno;
        close(file);
        errno = error;
        whole = false;
        break;
    }
    case 10:
        // Held back for up to 200 ms by TCP, so it is rare, and never the last of a phase.
        if (n < left && chance(&a->rng, 50)) flags |= MSG_MORE, counted(e, C_more);
        name = "send", counted(e, C_send), put = send(fd, a->buf, n, flags);
        break;
    case 11: {
        name = "splice", counted(e, C_splice_out);
        int p[2];
        if (pipe2(p, O_CLOEXEC)) fail(e, "pipe: %s", strerror(errno));
        if (n > 4096) n = 4096;
        if (write(p[1], a->buf, n) != (ssize_t)n) fail(e, "a pipe took less than %zu bytes", n);
        put = splice(p[0], NULL, fd, NULL, n, block ? 0 : SPLICE_F_NONBLOCK);
        error = errno;
        close(p[0]), close(p[1]);
        errno = error;
        whole = false;
        break;
    }
    }
    if (put < 0) {
        error = errno;
        if (error == EINTR && storms_begun) return (struct moved){.n = 0, .looked = true};
        if (error != EAGAIN) not_expected(a, k, name, flags, error);
        if (ready && a->alone) spurious(e, "%s: EAGAIN on connection %d, which was reported writable", name, k);
        if (sleeps && a->alone) fail(e, "%s: EAGAIN on blocking connection %d", name, k);
        counted(e, C_again_write);
        return (struct moved){.n = -1};
    }
    if (put == 0 || (size_t)put > n) fail(e, "%s of %zu bytes returned %zd", name, n, put);
    if (sleeps && whole && (size_t)put < n && undisturbed(quiet, begun))
        fail(e, "blocking %s of %zu bytes on connection %d returned %zd", name, n, k, put);
    c->wpos = at + (uint64_t)put;
    if ((size_t)put < n) counted(e, C_short_write);
    return (struct moved){.n = put, .partial = (size_t)put < n && undisturbed(quiet, begun)};
}
