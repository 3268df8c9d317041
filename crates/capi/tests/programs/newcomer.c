// Written from docs/sdk.md and ginnel.h alone, as by somebody who sees them for the first time: a
// parent asks and a child answers, by two queues, until the parent's end is closed.

#include <ginnel.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) if ((call) < 0) return fprintf(stderr, "%s: %s\n", #call, ginnel_errmsg()), 1

static int child(void) {
    ginnel_segment *segment;
    ginnel_receiver *asked;
    ginnel_sender *answers;
    MUST(ginnel_open(NULL, NULL, &segment));
    MUST(ginnel_receiver_open(segment, "asked", &asked));
    MUST(ginnel_sender_open(segment, "answers", GINNEL_WAIT, &answers));
    ginnel_message message;
    while (ginnel_receiver_take(asked, GINNEL_FOREVER, &message) == 0) {
        ginnel_loan loan;
        MUST(ginnel_sender_loan(answers, message.len, GINNEL_FOREVER, &loan));
        const char *from = message.data;
        char *to = loan.data;
        for (size_t i = 0; i < message.len; i++) to[i] = from[message.len - 1 - i];
        MUST(ginnel_loan_send(&loan, loan.len));
        MUST(ginnel_message_drop(&message));
    }
    int ended = ginnel_errcode() == GINNEL_EENDED;
    ginnel_receiver_close(asked);
    ginnel_sender_close(answers);
    ginnel_close(segment);
    return !ended;
}

int main(void) {
    ginnel_segment *segment;
    MUST(ginnel_open(NULL, NULL, &segment));
    ginnel_queue_options options = {.size = sizeof options, .message_size = 256, .capacity = 8};
    MUST(ginnel_queue_open_or_create(segment, "asked", &options));
    MUST(ginnel_queue_open_or_create(segment, "answers", &options));
    ginnel_receiver *answers;
    ginnel_sender *asked;
    MUST(ginnel_receiver_open(segment, "answers", &answers));
    pid_t pid = fork();
    if (pid == 0) _exit(child());
    MUST(ginnel_sender_open(segment, "asked", GINNEL_WAIT, &asked));
    for (int i = 0; i < 100; i++) {
        char text[32];
        size_t len = (size_t)snprintf(text, sizeof text, "word %d", i);
        MUST(ginnel_sender_send(asked, text, len, GINNEL_FOREVER));
        ginnel_message message;
        MUST(ginnel_receiver_take(answers, INT64_C(60000000000), &message));
        const char *answer = message.data;
        for (size_t at = 0; at < len; at++)
            if (message.len != len || answer[at] != text[len - 1 - at]) return puts("wrong"), 1;
        MUST(ginnel_message_drop(&message));
    }
    ginnel_sender_close(asked);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) return printf("it ended with %d\n", status), 1;
    ginnel_receiver_close(answers);
    ginnel_close(segment);
    return 0;
}
