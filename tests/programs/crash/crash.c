// Crash test: pairs of processes over one connection each, one of them (or both) killed at a random moment in what it does.
// The survivor must see the end as TCP shows it: end of file, ECONNRESET or EPIPE; and what it received must be the
// beginning of what was sent. It knows nothing of Ginnel and holds on plain TCP.
#include <stdatomic.h>

#include "../include/check.h"
#include "../switching/stream.h"

enum mode { TO_CLIENT, TO_SERVER, BOTH_WAYS, IN_RECV, IN_POLL, IN_EDGE, PINGPONG, FULL, EVENTS, IN_SELECT, MODES };
static const char *const mode_names[] = {"to client", "to server", "both ways", "in recv", "in poll", "in edge", "ping-pong", "full", "events", "in select"};

struct header {
    uint64_t seed;
    int mode;
};

enum outcome { NONE, END, RESET, BROKEN, OUTCOMES };

static enum outcome outcome_of(ssize_t n) {
    if (n == 0) return END;
    CHECK(n == -1);
    CHECK(errno == ECONNRESET || errno == EPIPE);
    return errno == EPIPE ? BROKEN : RESET;
}

struct stream {
    int fd;
    uint64_t key, at;
    enum outcome outcome;
};

static enum outcome receive_once(struct stream *s, size_t size, int flags) {
    static _Thread_local uint8_t got[65536], want[65536];
    ssize_t n = recv(s->fd, got, size, flags);
    if (n < 0 && errno == EAGAIN) return NONE;
    if (n <= 0) return outcome_of(n);
    stream_fill(s->key, s->at, want, (size_t)n);
    CHECK(!memcmp(got, want, (size_t)n));
    s->at += (uint64_t)n;
    return NONE;
}

static enum outcome send_once(struct stream *s, size_t size, int flags) {
    static _Thread_local uint8_t text[65536];
    stream_fill(s->key, s->at, text, size);
    ssize_t n = send(s->fd, text, size, flags | MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return NONE;
    if (n <= 0) return outcome_of(n);
    s->at += (uint64_t)n;
    return NONE;
}

static void *receive_all(void *p) {
    struct stream *s = p;
    while (!(s->outcome = receive_once(s, 65536, 0))) {}
    return NULL;
}

static void *send_all(void *p) {
    struct stream *s = p;
    while (!(s->outcome = send_once(s, 65536, 0))) {}
    return NULL;
}

static enum outcome both_ways(struct stream *in, struct stream *out) {
    pthread_t thread;
    IS(pthread_create(&thread, NULL, send_all, out), 0);
    receive_all(in);
    pthread_join(thread, NULL);
    return in->outcome;
}

static enum outcome event_loop(struct stream *in, struct stream *out, uint32_t mode) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    enum outcome outcome = NONE;
    nonblocking(in->fd);
    IS(epoll_add(set, in->fd, EPOLLIN | EPOLLRDHUP | (out ? EPOLLOUT : 0u) | mode), 0);
    while (!outcome) {
        uint32_t events = epolled(set, in->fd, -1);
        CHECK(events);
        if (events & ~(uint32_t)EPOLLOUT)
            do {
                uint64_t at = in->at;
                outcome = receive_once(in, 10000, 0);
                if (!outcome && in->at == at) break;
            } while (!outcome && mode);
        while (out && events & EPOLLOUT && !outcome) {
            uint64_t at = out->at;
            outcome = send_once(out, 10000, 0);
            if (out->at == at) break;
        }
    }
    close(set);
    return outcome;
}

// What one end does until the connection ends. `role` 0 is the server.
static enum outcome behave(int fd, const struct header *h, int role) {
    struct stream in = {fd, mix2(h->seed, (uint64_t)!role), 0, 0}, out = {fd, mix2(h->seed, (uint64_t)role), 0, 0};
    uint64_t rng = h->seed;
    enum outcome outcome = NONE;
    // An exchange first: some die in it, most after it.
    for (int i = 0; i < 30 && !outcome; i++)
        for (int turn = 0; turn < 2 && !outcome; turn++) {
            uint64_t until = (turn == role ? out.at : in.at) + 20;
            while (!outcome && (turn == role ? out.at : in.at) < until)
                outcome = turn == role ? send_once(&out, 20, 0) : receive_once(&in, (size_t)(until - in.at), 0);
        }
    if (outcome) return outcome;
    switch ((enum mode)h->mode) {
    case TO_CLIENT: case TO_SERVER: {
        bool sender = (h->mode == TO_CLIENT) == (role == 0);
        while (!outcome) outcome = sender ? send_once(&out, 1 + below(&rng, 65536), 0) : receive_once(&in, 1 + below(&rng, 65536), 0);
        return outcome;
    }
    case BOTH_WAYS: return both_ways(&in, &out);
    case IN_RECV: return receive_once(&in, 100, 0);
    case IN_POLL: CHECK(polled(fd, POLLIN, -1) & (POLLIN | POLLERR | POLLHUP)); break;
    case IN_SELECT: {
        fd_set r;
        FD_ZERO(&r);
        FD_SET(fd, &r);
        IS(select(fd + 1, &r, NULL, NULL, NULL), 1);
        break;
    }
    case IN_EDGE: return event_loop(&in, NULL, EPOLLET);
    case PINGPONG:
        for (int i = 0; !outcome; i++) {
            uint64_t step = 1 + below(&rng, 3000), until = (i % 2 == role ? out.at : in.at) + step;
            while (!outcome && (i % 2 == role ? out.at : in.at) < until)
                outcome = i % 2 == role ? send_once(&out, (size_t)(until - out.at), 0) : receive_once(&in, (size_t)(until - in.at), 0);
        }
        return outcome;
    case FULL:
        if (role == 0) {
            while (!outcome) outcome = send_once(&out, 65536, 0);
            return outcome;
        }
        polled(fd, POLLRDHUP, 100);  // the end is behind what it does not read: TCP may not be able to send it before
        break;
    case EVENTS: return event_loop(&in, &out, role ? EPOLLET : 0);
    case MODES: break;
    }
    while (!outcome) outcome = receive_once(&in, 65536, 0);
    return outcome;
}

struct result {
    uint64_t seed;  // of the connection's header, 0 if none came
    int outcome;
};

// One connection after the other.
static void serve(int listener, int results) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR)) continue;
        if (fd < 0) exit(0);
        struct header h = {0};
        struct result result = {0};
        size_t have = 0;
        while (have < sizeof h && !result.outcome) {
            ssize_t n = recv(fd, (char *)&h + have, sizeof h - have, 0);
            if (n <= 0) result.outcome = outcome_of(n);
            else have += (size_t)n;
        }
        if (!result.outcome) result.seed = h.seed, result.outcome = behave(fd, &h, 0);
        close(fd);
        if (write(results, &result, sizeof result) != sizeof result) exit(0);
    }
}

static pid_t start_server(int listener, int results[2]) {
    IS(pipe(results), 0);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        close(results[0]);
        serve(listener, results[1]);
    }
    close(results[1]);
    return server;
}

static __attribute__((noreturn)) void unnoticed(const char *who, pid_t pid, const struct header *h) {
    fprintf(stderr, "crash: %s, process %d, has not noticed in %d ms that the other end was killed (mode: %s, seed %llu)\n", who, pid, PATIENCE,
            mode_names[h->mode], (unsigned long long)h->seed);
    for (;;) pause();  // for whoever watches, to look
}

static void drop_waiting(int listener) {
    while (polled(listener, POLLIN, 0)) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0) close(fd);
    }
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 100;
    uint64_t rng = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)now_ms();
    int seen[OUTCOMES] = {0}, kills = 0, results[2];
    struct sockaddr_in at;
    int listener = listen_on(&at);
    pid_t server = start_server(listener, results);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < count; i++) {
        struct header h = {rnd(&rng), (int)below(&rng, MODES)};
        bool kill_server = chance(&rng, 3), kill_both = chance(&rng, 20);
        pid_t client = fork();
        CHECK(client >= 0);
        if (client == 0) {
            close(listener), close(results[0]);
            int fd = connect_to(&at);
            ssize_t n = send(fd, &h, sizeof h, MSG_NOSIGNAL);
            if (n != sizeof h) exit(outcome_of(n));
            exit((int)behave(fd, &h, 1));
        }
        // From before the connection is there until long after everything has come to rest.
        usleep((useconds_t)(chance(&rng, 3) ? below(&rng, 2000) : below(&rng, 12000)));
        if (kill_server || kill_both) {
            IS(kill(server, SIGKILL), 0);
            kills++;
        }
        if (!kill_server || kill_both) {
            IS(kill(client, SIGKILL), 0);
            kills++;
        }
        if (kill_server || kill_both) {
            IS(WTERMSIG(ended(server)), SIGKILL);
            close(results[0]);
            if (kill_both) ended(client);
            else {
                // What was not yet accepted nobody accepts now but this process, which lets go of it.
                int status = 0;
                pid_t done = 0;
                for (int64_t end = now_ms() + PATIENCE; done == 0 && now_ms() < end;) {
                    drop_waiting(listener);
                    usleep(200);
                    done = waitpid(client, &status, WNOHANG);
                }
                if (done == 0) unnoticed("the client", client, &h);
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) > NONE && WEXITSTATUS(status) < OUTCOMES);
                seen[WEXITSTATUS(status)]++;
            }
            drop_waiting(listener);
            server = start_server(listener, results);
        } else {
            IS(WTERMSIG(ended(client)), SIGKILL);
            // The next connection is served when the server is through with the killed one.
            struct header next = {rnd(&rng), IN_RECV};
            int fd = connect_to(&at);
            IS(send(fd, &next, sizeof next, MSG_NOSIGNAL), sizeof next);
            struct stream in = {fd, mix2(next.seed, 0), 0, 0}, out = {fd, mix2(next.seed, 1), 0, 0};
            for (int j = 0; j < 30; j++) {
                uint64_t until = in.at + 20;
                while (in.at < until) {
                    if (polled(fd, POLLIN, PATIENCE) == 0) unnoticed("the server", server, &h);
                    IS(receive_once(&in, (size_t)(until - in.at), 0), NONE);
                }
                IS(send_once(&out, 20, 0), NONE);
            }
            close(fd);
            struct result result = {0};
            while (result.seed != next.seed) {
                IS(polled(results[0], POLLIN, PATIENCE), POLLIN);
                IS(read(results[0], &result, sizeof result), sizeof result);
                CHECK(result.outcome > NONE && result.outcome < OUTCOMES);
                if (result.seed == h.seed) seen[result.outcome]++;
            }
            IS(result.outcome, END);
        }
    }
    kill(server, SIGTERM);
    ended(server);
    say("{\"pairs\":%d,\"kills\":%d,\"end\":%d,\"reset\":%d,\"broken\":%d}", count, kills, seen[END], seen[RESET], seen[BROKEN]);
}
