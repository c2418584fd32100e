/*
 * A relay between clients and a server that holds back every byte for a while, as a network
 * does. One thread waits for all connections and for the next bytes that are due, so it
 * takes little of the processors that it shares with the measurement.
 *
 * Usage: relay PORT SERVER-PORT MICROSECONDS, both on 127.0.0.1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { most = 2048, room = 1 << 20 };

struct chunk {
	int64_t due;
	size_t size, sent;
	struct chunk *next;
	char data[];
};

/* A line is one direction of a connection. */
struct line {
	int from, to, pair; /* pair: the index of the other direction */
	struct chunk *first, **last;
	int ended;
};

static struct line lines[most];
static struct pollfd fds[most + 1];
static char buffer[room];

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int dial(int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static void open_pair(int client, int server)
{
	int i = 0;
	while (i < most && lines[i].from > 0)
		i += 2;
	if (i >= most) {
		close(client);
		close(server);
		return;
	}
	lines[i] = (struct line){.from = client, .to = server, .pair = i + 1, .last = &lines[i].first};
	lines[i + 1] = (struct line){.from = server, .to = client, .pair = i, .last = &lines[i + 1].first};
}

static void close_pair(int i)
{
	i &= ~1;
	close(lines[i].from);
	close(lines[i].to);
	for (int n = i; n < i + 2; n++) {
		for (struct chunk *c = lines[n].first; c != NULL;) {
			struct chunk *next = c->next;
			free(c);
			c = next;
		}
		memset(&lines[n], 0, sizeof lines[n]);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
	int64_t delay = atoll(argv[3]) * 1000;
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 512) != 0) {
		perror("listen");
		return 1;
	}
	for (;;) {
		int64_t next = INT64_MAX;
		fds[most] = (struct pollfd){.fd = listener, .events = POLLIN};
		for (int i = 0; i < most; i++) {
			struct line *l = &lines[i];
			fds[i] = (struct pollfd){.fd = l->from > 0 && !l->ended ? l->from : -1, .events = POLLIN};
			if (l->first != NULL && l->first->due < next)
				next = l->first->due;
		}
		int64_t left = next == INT64_MAX ? 1000000000 : next - now();
		if (left < 0)
			left = 0;
		struct timespec wait = {left / 1000000000, left % 1000000000};
		if (ppoll(fds, most + 1, &wait, NULL) < 0)
			continue;
		int64_t at = now();
		for (int i = 0; i < most; i++) {
			struct line *l = &lines[i];
			if (l->from <= 0)
				continue;
			if (fds[i].fd > 0 && fds[i].revents != 0) {
				ssize_t n = recv(l->from, buffer, room, MSG_DONTWAIT);
				if (n > 0) {
					struct chunk *c = malloc(sizeof *c + n);
					*c = (struct chunk){.due = at + delay, .size = n};
					memcpy(c->data, buffer, n);
					*l->last = c;
					l->last = &c->next;
				} else if (n == 0 || fds[i].revents & (POLLERR | POLLHUP)) {
					l->ended = 1;
				}
			}
			int broken = 0;
			while (l->first != NULL && l->first->due <= at && !broken) {
				struct chunk *c = l->first;
				ssize_t n = send(l->to, c->data + c->sent, c->size - c->sent, MSG_NOSIGNAL);
				if (n < 0) {
					broken = 1;
					break;
				}
				c->sent += n;
				if (c->sent < c->size)
					break;
				if ((l->first = c->next) == NULL)
					l->last = &l->first;
				free(c);
			}
			if (broken || (l->ended && l->first == NULL))
				close_pair(i);
		}
		if (fds[most].revents & POLLIN) {
			int client = accept(listener, NULL, NULL);
			if (client > 0) {
				setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
				int server = dial(atoi(argv[2]));
				if (server > 0)
					open_pair(client, server);
				else
					close(client);
			}
		}
	}
}
