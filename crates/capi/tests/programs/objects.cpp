// The header in C++17: a queue between two threads.

#include <ginnel.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

static int failed(int line) {
    std::fprintf(stderr, "line %d: %s\n", line, ginnel_errmsg());
    return 1;
}

int main() {
    ginnel_segment *segment = nullptr;
    ginnel_options options{};
    options.size = sizeof options;
    options.segment_size = 32 << 20;
    if (ginnel_open("cpp", &options, &segment) != 0) return failed(__LINE__);
    if (ginnel_queue_create(segment, "q", nullptr) != 0) return failed(__LINE__);
    ginnel_receiver *receiver = nullptr;
    if (ginnel_receiver_open(segment, "q", &receiver) != 0) return failed(__LINE__);
    int sent = 0;
    std::thread thread([&] {
        ginnel_sender *sender = nullptr;
        if (ginnel_sender_open(segment, "q", GINNEL_WAIT, &sender) != 0) return;
        for (int i = 0; i < 100; i++) {
            const std::string text = "message " + std::to_string(i);
            if (ginnel_sender_send(sender, text.data(), text.size(), GINNEL_FOREVER) == 0) sent++;
        }
        ginnel_sender_close(sender);
    });
    for (int i = 0; i < 100; i++) {
        char text[32] = {};
        std::size_t len = 0;
        if (ginnel_receiver_read(receiver, text, sizeof text, &len, GINNEL_FOREVER) != 0)
            return failed(__LINE__);
        if ("message " + std::to_string(i) != std::string(text, len)) return failed(__LINE__);
    }
    thread.join();
    if (sent != 100) return failed(__LINE__);
    if (ginnel_receiver_take(receiver, GINNEL_FOREVER, nullptr) != -1) return failed(__LINE__);
    if (ginnel_receiver_close(receiver) != 0) return failed(__LINE__);
    ginnel_close(segment);
    return 0;
}
