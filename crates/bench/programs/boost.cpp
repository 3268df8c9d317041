// Ping-pong through two queues of boost.interprocess's, both ends polling: `--size` bytes to and
// fro, half a round trip. Options and result line are those of references.c.
#include <boost/interprocess/ipc/message_queue.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using boost::interprocess::message_queue;
using std::chrono::steady_clock;

namespace {

constexpr int BATCH = 16, WARM_UP = 1000;
constexpr char LAST = 0;
std::map<std::string, std::string> asked{{"--size", "64"}, {"--seconds", "0.2"}};

void pin(const char *name) {
    if (!asked.count(name)) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(std::stoi(asked[name]), &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) std::perror("pinning"), std::exit(1);
}

void send(message_queue &queue, const std::vector<char> &message) {
    while (!queue.try_send(message.data(), message.size(), 0)) {}
}

void receive(message_queue &queue, std::vector<char> &message) {
    message_queue::size_type length;
    unsigned priority;
    while (!queue.try_receive(message.data(), message.size(), length, priority)) {}
}

void answer(message_queue &there, message_queue &back, std::vector<char> message) {
    for (;;) {
        receive(there, message);
        send(back, message);
        if (message[0] == LAST) return;
    }
}

std::vector<double> ask(message_queue &there, message_queue &back, std::vector<char> message) {
    auto exchanges = [&](int count) {
        for (int i = 0; i < count; i++) send(there, message), receive(back, message);
    };
    exchanges(WARM_UP);
    std::vector<double> samples;
    auto now = steady_clock::now(), until = now + std::chrono::duration_cast<steady_clock::duration>(
                                                      std::chrono::duration<double>(std::stod(asked["--seconds"])));
    while (now < until) {
        exchanges(BATCH);
        auto then = steady_clock::now();
        samples.push_back(std::chrono::duration<double, std::nano>(then - now).count() / (2 * BATCH));
        now = then;
    }
    message[0] = LAST;
    exchanges(1);
    return samples;
}

} // namespace

int main(int argc, char **argv) {
    for (int i = 2; i + 1 < argc; i += 2) asked[argv[i]] = argv[i + 1];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string names[] = {"gnlbench-there-" + std::to_string(getpid()), "gnlbench-back-" + std::to_string(getpid())};
    const std::size_t size = std::stoul(asked["--size"]);
    std::vector<char> message(size, 1);
    boost::interprocess::create_only_t create;
    message_queue there(create, names[0].c_str(), 16, size), back(create, names[1].c_str(), 16, size);
    // Both have them mapped; whatever happens, no file stays.
    for (auto &name : names) message_queue::remove(name.c_str());
    pid_t child = fork();
    if (child < 0) return std::perror("fork"), 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin("--peer-cpu");
        answer(there, back, message);
        _exit(0);
    }
    pin("--cpu");
    auto samples = ask(there, back, message);
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0) return std::perror("the other process"), 1;
    std::sort(samples.begin(), samples.end());
    std::printf("result samples=%zu p50_ns=%.1f\nend\n", samples.size(), samples[samples.size() / 2]);
    return 0;
}
