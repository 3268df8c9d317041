/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What programs and the driver of Ginnel's shared memory say to each other.
 *
 * A device, /dev/ginnel0 and so on, is a segment that the host shares with this machine. mmap(2) with MAP_SHARED maps it, write-back cached,
 * from offset 0 on. ioctl(2) takes the commands below. An open file can wait for one thing (GINNEL_WATCH): it is readable once that has
 * happened; read(2) gives a 64-bit count, how often, and clears it; write(2) of anything makes it readable.
 *
 * When the device is unplugged, open files are ready with EPOLLHUP and EPOLLERR and their calls fail with ENODEV; what was mapped stays
 * mapped, and each page of it reads as zeroes from then on and belongs to the process alone.
 */
#ifndef GINNEL_H
#define GINNEL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this interface. */
#define GINNEL_VERSION 1

/* In ginnel_info.flags: doorbells can be rung and waited for. */
#define GINNEL_DOORBELLS (1u << 0)

struct ginnel_info {
	__u32 version;	/* GINNEL_VERSION */
	__u32 flags;
	__u32 peer;	/* this machine's id among the peers */
	__u32 vectors;	/* interrupts that can be watched: 0 to vectors - 1 */
	__u64 size;	/* bytes of the segment */
};

/* In ginnel_watch.offset: every interrupt of the vector counts. */
#define GINNEL_ALWAYS (~(__u64)0)

struct ginnel_watch {
	/*
	 * Place of a 64-bit word in the segment, a multiple of 8: an interrupt counts if the word is not zero by then. So many may wait on
	 * one vector, and only those are woken that are meant.
	 */
	__u64 offset;
	__u32 vector;
	__u32 reserved;	/* 0 */
};

/*
 * Asks for the secret that the two ends of one TCP connection share: a hash, keyed with both
 * initial sequence numbers, over what follows and the addresses. Only the two kernels know the
 * numbers, and none leaves them. Who holds an end shows the other that he has the secret, and does
 * not show it (docs/protocol.md).
 */
struct ginnel_secret {
	__s32 fd;		/* a TCP socket that is connected */
	__u8 side;		/* this end's side of the channel, 0 or 1 */
	__u8 connected;		/* 1: this end called connect */
	__u8 reserved[2];	/* 0 */
	__u64 nonces[2];	/* drawn by side 0 and side 1 */
	__u64 secret;		/* out */
};

/* A doorbell, as the argument of GINNEL_RING. */
#define GINNEL_BELL(peer, vector) ((__u32)(peer) << 16 | (__u32)(vector))

#define GINNEL_INFO	_IOR(0xb6, 1, struct ginnel_info)
/*
 * Wait for interrupts on this file, in place of what it waited for before. ENOSPC: 4096 files wait for the vector, which is the most; then
 * this one waits for nothing.
 */
#define GINNEL_WATCH	_IOW(0xb6, 2, struct ginnel_watch)
/* Ring the doorbell that the argument names; takes a file that is open for writing. Nobody says whether anybody is there. */
#define GINNEL_RING	_IO(0xb6, 3)
/* Fails with EBADF or ENOTSOCK where fd is no socket, EINVAL where it is none of TCP, ENOTCONN where it is not connected. */
#define GINNEL_SECRET	_IOWR(0xb6, 4, struct ginnel_secret)

#endif /* GINNEL_H */
